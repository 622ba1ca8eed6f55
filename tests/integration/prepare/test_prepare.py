"""`tensorldm prepare` from files to store: right tensors, only what is missing, and no scan can spoil another's."""

import json

import nibabel
import numpy as np
import pytest
import torch

from tensorldm.data.store import Store

IN_MEMORY = "--set", "margin_mm=100"


def test_a_noise_free_scan_gives_its_true_tensor_and_signal_ratio(scan, truth, tmp_path, program):
    answer = program("prepare", scan.write_hcp(tmp_path / "100307"), "--out", tmp_path / "store", *IN_MEMORY)
    assert answer.code == 0, answer.err
    subject = Store.open(tmp_path / "store").load("100307")
    assert subject.record.volumes == (0, 1, 3, 8)
    assert (subject.record.num_b0, subject.record.num_directions) == (2, 9)
    np.testing.assert_array_equal(subject.mask.numpy(), scan.mask)
    np.testing.assert_allclose(subject.components.numpy(), truth, atol=2e-8)
    inside = scan.mask
    np.testing.assert_allclose(
        (subject.dwi[1] / subject.dwi[0]).numpy()[inside], (scan.data[..., 1] / scan.data[..., 0])[inside], rtol=1e-5
    )
    assert float(subject.dwi[0][subject.mask].median()) == pytest.approx(1)
    assert not subject.dwi[:, ~subject.mask].any()
    assert subject.record.gradient_check == "verified"
    assert subject.record.warnings == ()


@pytest.mark.parametrize("orientation", ["LAS", "LPS", "PSR", "IRA", "SLP"])
def test_the_same_head_stored_in_another_orientation_gives_the_same_subject(
    scan, truth, tmp_path, program, orientation
):
    tree = scan.stored(orientation).write_hcp(tmp_path / "head")
    assert program("prepare", tree, "--out", tmp_path / "store", *IN_MEMORY).code == 0
    subject = Store.open(tmp_path / "store").load("head")
    np.testing.assert_allclose(subject.components.numpy(), truth, atol=2e-8)
    np.testing.assert_allclose(subject.affine, scan.affine, atol=1e-5)
    np.testing.assert_allclose(subject.directions.numpy()[1:], scan.bvecs[[1, 3, 8]], atol=1e-6)


def test_the_gradient_nonlinearity_of_hcp_is_undone(scan, truth, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "head")
    deviation = np.array([[0.03, 0.01, 0], [-0.02, -0.04, 0.01], [0.0, 0.02, 0.05]])
    flip = np.diag([-1.0, 1, 1])  # the file is in the frame of the b-vectors, mirrored because det > 0
    field = np.broadcast_to((flip @ deviation @ flip).T.reshape(9), (*scan.mask.shape, 9)).astype(np.float32)
    nibabel.save(nibabel.Nifti1Image(field, scan.affine), tree / "T1w" / "Diffusion" / "grad_dev.nii.gz")
    # What the scanner really played out: (I + L) g, b growing with its squared length.
    played = scan.bvecs @ (np.eye(3) + deviation).T
    tensors = np.moveaxis(truth[[0, 3, 4, 3, 1, 5, 4, 5, 2]].reshape(3, 3, *scan.mask.shape), (0, 1), (-2, -1))
    exponent = np.einsum("ni,xyzij,nj->xyzn", played, tensors, played) * scan.bvals
    scan.data = np.where(scan.mask[..., None], 500 * np.exp(-exponent), 2.0)
    nibabel.save(
        nibabel.Nifti1Image(scan.data.astype(np.float32), scan.affine), tree / "T1w" / "Diffusion" / "data.nii.gz"
    )
    for fit in ("ols", "wls", "nlls"):
        out = tmp_path / fit
        assert program("prepare", tree, "--out", out, *IN_MEMORY, "--set", f"reference_fit={fit}").code == 0
        subject = Store.open(out).load("head")
        assert subject.record.gradient_nonlinearity
        np.testing.assert_allclose(subject.components.numpy(), truth, atol=2e-7)
    ignored = tmp_path / "ignored"
    assert program("prepare", tree, "--out", ignored, *IN_MEMORY, "--set", "gradient_nonlinearity=false").code == 0
    assert np.abs(Store.open(ignored).load("head").components.numpy() - truth).max() > 5e-5


def test_mirrored_gradients_are_refused_or_taken_with_a_word(scan, tmp_path, program):
    scan.bvecs = scan.bvecs * [1, -1, 1]
    tree = scan.write_hcp(tmp_path / "head")
    refused = program("prepare", tree, "--out", tmp_path / "store")
    assert refused.code == 2
    assert "taken as x, -y, z:" in refused.err
    taken = program("prepare", tree, "--out", tmp_path / "warned", "--set", "suspect_gradients=warn")
    assert taken.code == 0
    record = Store.open(tmp_path / "warned").load("head").record
    assert record.gradient_check == "suspect"
    assert "check signs and order" in record.warnings[0]


@pytest.mark.parametrize("orientation", ["RAS", "LAS", "PSR"])
def test_what_is_wrong_with_gradients_is_told_in_the_axes_of_their_file(scan, tmp_path, program, orientation):
    tree = scan.stored(orientation).write_hcp(tmp_path / "head")
    path = tree / "T1w" / "Diffusion" / "bvecs"
    x, y, z = np.loadtxt(path)
    np.savetxt(path, [y, x, z], fmt="%.8f")
    assert "taken as y, x, z:" in program("prepare", tree, "--out", tmp_path / "store").err


def test_running_again_does_only_what_is_missing(scan, tmp_path, program):
    scan.write_hcp(tmp_path / "tree" / "a")
    first = program("prepare", tmp_path / "tree", "--out", tmp_path / "store")
    assert "1 prepared" in first.out
    written = (tmp_path / "store" / "subjects" / "a.safetensors").stat().st_mtime_ns
    scan.data = scan.data * 1.5
    scan.write_hcp(tmp_path / "tree" / "b")
    second = program("prepare", tmp_path / "tree", "--out", tmp_path / "store")
    assert "1 prepared, 1 kept" in second.out
    assert (tmp_path / "store" / "subjects" / "a.safetensors").stat().st_mtime_ns == written
    (tmp_path / "store" / "subjects" / "b.safetensors").unlink()
    assert "1 prepared, 1 kept" in program("prepare", tmp_path / "tree", "--out", tmp_path / "store").out


def test_a_file_that_changed_is_prepared_anew(scan, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "a")
    program("prepare", tree, "--out", tmp_path / "store")
    before = Store.open(tmp_path / "store").load("a").record.b0_scale
    scan.data = scan.data * 2
    scan.write_hcp(tmp_path / "a")
    assert "1 prepared" in program("prepare", tree, "--out", tmp_path / "store").out
    assert Store.open(tmp_path / "store").load("a").record.b0_scale == pytest.approx(2 * before, rel=1e-5)


def test_a_bad_scan_is_named_and_skipped_and_the_rest_go_on(scan, tmp_path, program):
    for name in "abc":
        scan.data = scan.data * 1.1
        scan.write_hcp(tmp_path / "tree" / name)
    (tmp_path / "tree" / "b" / "T1w" / "Diffusion" / "bvecs").unlink()
    (tmp_path / "tree" / "c" / "T1w" / "Diffusion" / "data.nii.gz").write_bytes(b"not an image")
    answer = program("prepare", tmp_path / "tree", "--out", tmp_path / "store")
    assert answer.code == 1
    assert "1 prepared, 2 failed" in answer.out
    assert "bvecs" in answer.out
    assert Store.open(tmp_path / "store").names == ("a",)


def test_several_processes_give_the_same_bytes_as_one(scan, tmp_path, program):
    for name in "ab":
        scan.data = scan.data * 1.1
        scan.write_hcp(tmp_path / "tree" / name)
    assert program("prepare", tmp_path / "tree", "--out", tmp_path / "one").code == 0
    assert program("prepare", tmp_path / "tree", "--out", tmp_path / "two", "--workers", 2).code == 0
    one, two = (Store.open(tmp_path / name) for name in ("one", "two"))
    assert [entry.sha256 for entry in one.index.entries] == [entry.sha256 for entry in two.index.entries]


def test_sessions_of_a_bids_subject_stay_in_one_split(scan, tmp_path, program):
    for person in range(4):
        for session in ("1", "2"):
            scan.data = scan.data * 1.01
            scan.write_bids(tmp_path / "bids", f"{person}", session)
    answer = program("prepare", tmp_path / "bids", "--out", tmp_path / "store", "--split-seed", 3)
    assert answer.code == 0, answer.out + answer.err
    store = Store.open(tmp_path / "store")
    assert "8 subjects of 4 persons" in answer.out
    for person in range(4):
        assert len({store.index.splits[f"sub-{person}_ses-{s}"] for s in "12"}) == 1
    assert len(set(store.index.splits.values())) > 1


def test_a_manifest_joins_scans_of_one_person_and_pins_their_split(scan, tmp_path, program):
    paths = []
    for name in ("supine", "prone", "other"):
        scan.data = scan.data * 1.1
        paths.append(scan.write_files(tmp_path / f"{name}.nii.gz"))
    manifest = tmp_path / "manifest.tsv"
    manifest.write_text("name\tperson\tsplit\nsupine\thim\ttest\nprone\thim\tn/a\n")
    answer = program("prepare", *paths, "--out", tmp_path / "store", "--manifest", manifest)
    assert answer.code == 0, answer.out + answer.err
    splits = Store.open(tmp_path / "store").index.splits
    assert (splits["supine"], splits["prone"], splits["other"]) == ("test", "test", "train")
    moved = tmp_path / "moved.tsv"
    moved.write_text("name\tperson\tsplit\nsupine\thim\ttrain\nprone\thim\ttrain\n")
    refused = program("prepare", *paths, "--out", tmp_path / "store", "--manifest", moved)
    assert refused.code == 2
    assert "person 'him' would be in two splits" in refused.err
    assert "prepared" not in refused.out  # told before any work
    assert Store.open(tmp_path / "store").index.splits == splits


def test_a_mask_beside_a_file_is_used_and_said(scan, tmp_path, program):
    scan.mask = scan.mask & (np.arange(scan.mask.shape[0]) < 5)[:, None, None]
    path = scan.write_files(tmp_path / "anna" / "dwi.nii.gz")
    nibabel.save(nibabel.Nifti1Image(scan.mask.astype(np.uint8), scan.affine), tmp_path / "anna" / "dwi_mask.nii.gz")
    answer = program("prepare", path, "--out", tmp_path / "store", *IN_MEMORY)
    assert answer.code == 0, answer.err
    assert "dwi_mask.nii.gz" in answer.err
    subject = Store.open(tmp_path / "store").load("anna_dwi")
    np.testing.assert_array_equal(subject.mask.numpy(), scan.mask)
    assert "mask" in {source.role for source in subject.record.sources}


def test_a_mask_beside_of_another_grid_is_refused_by_name(scan, tmp_path, program):
    path = scan.write_files(tmp_path / "dwi.nii.gz")
    nibabel.save(nibabel.Nifti1Image(scan.mask[1:].astype(np.uint8), scan.affine), tmp_path / "mask.nii.gz")
    answer = program("prepare", path, "--out", tmp_path / "store")
    assert answer.code == 2
    assert f"error: {tmp_path / 'mask.nii.gz'}: its grid" in answer.err


def test_copies_of_one_scan_under_many_names_never_meet_in_training_and_test(scan, tmp_path, program):
    for number in range(8):
        scan.write_bids(tmp_path / "bids", f"{number}", "1")
    scan.data = scan.data * 1.1
    scan.write_bids(tmp_path / "bids", "other", "1")
    answer = program("prepare", tmp_path / "bids", "--out", tmp_path / "store")
    assert answer.code == 0, answer.err
    assert "9 subjects of 2 persons" in answer.out
    splits = Store.open(tmp_path / "store").index.splits
    assert len({split for name, split in splits.items() if "other" not in name}) == 1


@pytest.mark.parametrize("held_out", ["train", "validation", "test"])
def test_virtual_subjects_stay_with_their_anatomy_and_where_it_is_held_out(scan, tmp_path, program, held_out):
    lines = ["participant_id\tanatomy_source\tsplit"]
    for number in range(6):
        scan.data = scan.data * 1.01
        scan.write_bids(tmp_path / "bids", f"{number}", "1")
        lines.append(f"sub-{number}\t{('anna', 'berta', 'clara')[number % 3]}\t{held_out}")
    (tmp_path / "bids" / "participants.tsv").write_text("\n".join(lines))
    answer = program("prepare", tmp_path / "bids", "--out", tmp_path / "store")
    assert answer.code == 0, answer.err
    assert "6 subjects of 3 persons" in answer.out
    splits = Store.open(tmp_path / "store").index.splits
    for number in range(3):
        assert splits[f"sub-{number}_ses-1"] == splits[f"sub-{number + 3}_ses-1"]
    assert set(splits.values()) == ({"train", "test"} if held_out == "train" else {held_out})


def test_a_file_that_is_only_called_dwi_is_named_by_its_folder(scan, tmp_path, program):
    for name in ("anna", "bert"):
        scan.data = scan.data * 1.1
        path = scan.write_files(tmp_path / name / "dwi.nii.gz")
        assert program("prepare", path, "--out", tmp_path / "store").code == 0
    assert Store.open(tmp_path / "store").names == ("anna_dwi", "bert_dwi")


def test_files_given_without_persons_are_said_to_count_as_persons_of_their_own(scan, tmp_path, program):
    paths = []
    for name in ("AP", "PA"):
        scan.data = scan.data * 1.1
        paths.append(scan.write_files(tmp_path / f"{name}.nii.gz"))
    assert "--manifest" in program("prepare", *paths, "--out", tmp_path / "store").err


def test_the_mean_b0_and_the_literal_axes_are_options(scan, tmp_path, program):
    scan.data[..., 6] *= 1.2
    tree = scan.write_hcp(tmp_path / "head")
    options = ("--set", "b0=mean", "--set", "antipodal=false", *IN_MEMORY)
    assert program("prepare", tree, "--out", tmp_path / "store", *options).code == 0
    subject = Store.open(tmp_path / "store").load("head")
    assert subject.record.volumes[2] != 3  # volume 3 points to -y
    ratio = (subject.dwi[1] / subject.dwi[0])[subject.mask].numpy()
    mean = scan.data[..., [0, 6]].mean(axis=-1)
    np.testing.assert_allclose(ratio, (scan.data[..., 1] / mean)[scan.mask], rtol=1e-5)


def test_other_voxel_sizes_are_resampled_before_the_fit(scan, tmp_path, program):
    scan.affine = np.diag([3.0, 3.0, 4.0, 1.0])
    tree = scan.write_hcp(tmp_path / "head")
    assert program("prepare", tree, "--out", tmp_path / "store").code == 0
    subject = Store.open(tmp_path / "store").load("head")
    assert subject.voxel_size == pytest.approx((2, 2, 2))
    volume = scan.mask.sum() * 36
    assert subject.record.mask_voxels * 8 == pytest.approx(volume, rel=0.1)
    assert torch.isfinite(subject.components).all()


def test_the_record_tells_where_a_subject_comes_from(scan, tmp_path, program):
    program("prepare", scan.write_hcp(tmp_path / "head"), "--out", tmp_path / "store")
    index = json.loads((tmp_path / "store" / "store.json").read_text())
    (entry,) = index["entries"]
    assert {source["role"] for source in entry["record"]["sources"]} == {"dwi", "bval", "bvec", "mask"}
    assert all(len(source["sha256"]) == 64 for source in entry["record"]["sources"])
    assert index["settings"]["shell"] == 1000.0
    Store.open(tmp_path / "store").verify()
