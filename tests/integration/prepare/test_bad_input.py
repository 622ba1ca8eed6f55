"""Every way an input can be unusable, through the program: exit code 2, one sentence, nothing half-written."""

import errno
import gzip
import json
import os
import struct

import nibabel
import numpy as np
import pytest


def _rewrite(folder, **changes):
    path = folder / changes.pop("name", "data.nii.gz")
    image = nibabel.load(path)
    data, affine = image.get_fdata(), image.affine
    data = changes["data"](data) if "data" in changes else data
    affine = changes["affine"](affine) if "affine" in changes else affine
    nibabel.save(nibabel.Nifti1Image(data.astype(np.float32), affine), path)


def _bvals(folder, change):
    path = folder / "bvals"
    np.savetxt(path, change(np.loadtxt(path))[None], fmt="%g")


def _set(value, volume):
    def change(data):
        data[..., volume] = value
        return data

    return change


def _one_voxel(value, volume):
    def change(data):
        data[5, 6, 5, volume] = value
        return data

    return change


def _coplanar(folder):
    vectors = np.loadtxt(folder / "bvecs")
    vectors[2] = 0.01
    np.savetxt(folder / "bvecs", vectors / np.linalg.norm(vectors, axis=0))


def _weight_every_volume(folder):
    _bvals(folder, lambda b: np.where(b < 50, 1000, b))
    vectors = np.loadtxt(folder / "bvecs")
    vectors[0] += np.linalg.norm(vectors, axis=0) == 0
    np.savetxt(folder / "bvecs", vectors)


def _cone(folder):
    vectors = np.loadtxt(folder / "bvecs")
    around = np.linspace(0, 2 * np.pi, vectors.shape[1], endpoint=False)
    cone = np.array([np.cos(around), np.sin(around), np.full_like(around, 0.7)])
    np.savetxt(folder / "bvecs", cone / np.linalg.norm(cone, axis=0))


def _truncate(folder, name="data.nii.gz"):
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _header(offset, content):
    """Overwrite bytes of the NIfTI header inside the gzip."""

    def change(folder):
        path = folder / "data.nii.gz"
        raw = bytearray(gzip.decompress(path.read_bytes()))
        raw[offset : offset + len(content)] = content
        path.write_bytes(gzip.compress(bytes(raw)))

    return change


def _voxel_size(size):
    def change(affine):
        return affine @ np.diag([size, 1, 1, 1])

    return change


BROKEN = {
    "no bvec": (lambda f: (f / "bvecs").unlink(), ["bvecs", "no such file"]),
    "no bval": (lambda f: (f / "bvals").unlink(), ["bvals", "no such file"]),
    "no image": (lambda f: (f / "data.nii.gz").unlink(), ["data.nii.gz", "no such file"]),
    "one b-value too few": (lambda f: _bvals(f, lambda b: b[:-1]), ["bvecs", "13 vectors", "12 b-values"]),
    "gradients of another series": (
        lambda f: (_bvals(f, lambda b: b[:-1]), np.savetxt(f / "bvecs", np.loadtxt(f / "bvecs")[:, :-1])),
        ["data.nii.gz", "13 volumes", "12 gradients"],
    ),
    "gradients that are no numbers": (lambda f: (f / "bvecs").write_text("x y z"), ["bvecs", "not a table of numbers"]),
    "a weighted volume without direction": (
        lambda f: np.savetxt(f / "bvecs", np.where(np.arange(13) == 4, 0, np.loadtxt(f / "bvecs"))),
        ["bvecs", "volume 4", "no direction"],
    ),
    "no b=0": (_weight_every_volume, ["data.nii.gz", "No b=0 volume", "990"]),
    "wrong shell": (
        lambda f: _bvals(f, lambda b: np.where(b > 50, b + 700, b)),
        ["data.nii.gz", "No shell within 100 of b=1000", "1700 (9 volumes)", "2700 (2 volumes)"],
    ),
    "only two directions": (
        lambda f: _bvals(f, lambda b: np.where(np.isin(np.arange(13), [1, 2]), 1000, 5)),
        ["data.nii.gz", "three directions are needed, found 2"],
    ),
    "coplanar directions": (_coplanar, ["data.nii.gz", "coplanar"]),
    "directions on a cone": (_cone, ["data.nii.gz", "of the 7 unknowns"]),
    "3D image": (lambda f: _rewrite(f, data=lambda d: d[..., 0]), ["data.nii.gz", "3D", "4D"]),
    "empty mask": (
        lambda f: _rewrite(f, name="nodif_brain_mask.nii.gz", data=np.zeros_like),
        ["nodif_brain_mask", "empty"],
    ),
    "mask of another shape": (
        lambda f: _rewrite(f, name="nodif_brain_mask.nii.gz", data=lambda d: d[1:]),
        ["nodif_brain_mask", "(11, 13, 11)", "(12, 13, 11)"],
    ),
    "mask elsewhere in the world": (
        lambda f: _rewrite(f, name="nodif_brain_mask.nii.gz", affine=lambda a: a + 4 * np.eye(4, k=3)),
        ["nodif_brain_mask", "elsewhere"],
    ),
    "mask of no head": (
        lambda f: _rewrite(f, name="nodif_brain_mask.nii.gz", data=lambda d: d[..., None].repeat(2, axis=-1)),
        ["nodif_brain_mask"],
    ),
    "truncated mask": (lambda f: _truncate(f, "nodif_brain_mask.nii.gz"), ["nodif_brain_mask"]),
    "NaN voxels": (lambda f: _rewrite(f, data=_one_voxel(np.nan, 7)), ["data.nii.gz", "volume 7", "NaN"]),
    "infinite voxels": (lambda f: _rewrite(f, data=_one_voxel(np.inf, 2)), ["data.nii.gz", "volume 2", "infinite"]),
    "an all-zero volume": (lambda f: _rewrite(f, data=_set(0, 5)), ["data.nii.gz", "volume 5", "zero everywhere"]),
    "truncated gzip": (_truncate, ["data.nii.gz", "cut short"]),
    "not an image": (lambda f: (f / "data.nii.gz").write_bytes(b"II*\0" * 200), ["data.nii.gz"]),
    "an empty file": (lambda f: (f / "data.nii.gz").write_bytes(b""), ["data.nii.gz"]),
    "unreadable header": (_header(70, struct.pack("<h", 9999)), ["data.nii.gz", "not a readable NIfTI"]),
    "impossible dimensions": (_header(40, struct.pack("<h", 77)), ["data.nii.gz", "not a readable NIfTI"]),
    "a header that claims more than the file holds": (
        _header(40, struct.pack("<8h", 4, 30000, 30000, 30000, 13, 1, 1, 1)),
        ["data.nii.gz"],
    ),
    "absurd voxel sizes": (lambda f: _rewrite(f, affine=_voxel_size(100)), ["data.nii.gz", "200"]),
    "gradient field of another grid": (
        lambda f: nibabel.save(
            nibabel.Nifti1Image(np.zeros((5, 5, 5, 9), np.float32), np.eye(4)), f / "grad_dev.nii.gz"
        ),
        ["grad_dev", "(5, 5, 5)"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_scan_is_refused_with_its_sentence(case, scan, tmp_path, program):
    spoil, words = BROKEN[case]
    tree = scan.write_hcp(tmp_path / "subject")
    spoil(tree / "T1w" / "Diffusion")
    answer = program("prepare", tree, "--out", tmp_path / "store")
    assert answer.code == 2, answer.out
    assert "Traceback" not in answer.err
    assert "bug" not in answer.err
    (line,) = [line for line in answer.err.splitlines() if line.startswith("error:")]
    for word in words:
        assert word in line
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".safetensors", ".part"}]


def test_loose_files_without_gradients_are_refused(scan, tmp_path, program):
    image = scan.write_files(tmp_path / "dwi.nii.gz")
    (tmp_path / "dwi.bvec").unlink()
    answer = program("prepare", image, "--out", tmp_path / "store")
    assert (answer.code, "no dwi.bvec beside it" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere", "there is no such file or folder"),
        ("nowhere.nii.gz", "no such file"),
        ("empty", "neither an HCP tree"),
    ],
)
def test_a_source_that_is_nothing_is_refused(source, words, tmp_path, program):
    (tmp_path / "empty").mkdir()
    answer = program("prepare", tmp_path / source, "--out", tmp_path / "store")
    assert answer.code == 2
    assert words in answer.err
    assert not (tmp_path / "store").exists()


def test_unknown_and_unfit_settings_are_refused(scan, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "subject")
    for setting, words in [("shel=1000", "Did you mean 'shell'?"), ("shell=-3", "'shell'"), ("shell", "KEY=VALUE")]:
        answer = program("prepare", tree, "--out", tmp_path / "store", "--set", setting)
        assert answer.code == 2
        assert words in answer.err
    answer = program("prepare", tree, "--out", tmp_path / "store", "--config", "nonesuch")
    assert (answer.code, "no preset 'nonesuch'" in answer.err) == (2, True)


def test_an_output_that_cannot_be_written_is_refused(scan, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "subject")
    (tmp_path / "file").write_text("in the way")
    answer = program("prepare", tree, "--out", tmp_path / "file" / "store")
    assert answer.code == 2
    assert "cannot be written" in answer.err
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_full_disk_leaves_nothing_half_written(scan, tmp_path, program, monkeypatch):
    tree = scan.write_hcp(tmp_path / "subject")
    sync = os.fsync

    def full(handle):
        if os.fstat(handle).st_size > 30_000:  # a subject; the index is smaller
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    answer = program("prepare", tree, "--out", tmp_path / "store")
    assert answer.code == 2
    assert "No space left on device" in answer.err
    assert not [path for path in (tmp_path / "store").rglob("*") if "subject" in path.name and path.is_file()]
    monkeypatch.setattr(os, "fsync", sync)
    assert program("prepare", tree, "--out", tmp_path / "store").code == 0


def test_a_store_of_another_version_is_not_added_to(scan, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "subject")
    assert program("prepare", tree, "--out", tmp_path / "store").code == 0
    index = tmp_path / "store" / "store.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "version": 7}))
    answer = program("prepare", tree, "--out", tmp_path / "store")
    assert answer.code == 2
    assert "store of version 7" in answer.err


def test_other_settings_or_another_split_seed_need_another_store(scan, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "subject")
    assert program("prepare", tree, "--out", tmp_path / "store").code == 0
    answer = program("prepare", tree, "--out", tmp_path / "store", "--set", "b0=mean")
    assert (answer.code, "b0: first before, mean now" in answer.err) == (2, True)
    answer = program("prepare", tree, "--out", tmp_path / "store", "--split-seed", 1)
    assert (answer.code, "was split with seed 0" in answer.err) == (2, True)


def test_two_scans_of_one_name_are_refused_before_any_work(scan, tmp_path, program):
    one, two = (scan.write_hcp(tmp_path / folder / "same") for folder in "ab")
    answer = program("prepare", one, two, "--out", tmp_path / "store")
    assert answer.code == 2
    assert "would be stored as 'same'" in answer.err
    assert not (tmp_path / "store").exists()


def test_another_scan_of_a_stored_name_does_not_take_its_place(scan, tmp_path, program):
    one, two = (scan.write_hcp(tmp_path / folder / "same") for folder in "ab")
    scan.data = scan.data * 2
    scan.write_hcp(two)
    assert program("prepare", one, "--out", tmp_path / "store").code == 0
    kept = (tmp_path / "store" / "subjects" / "same.safetensors").read_bytes()
    answer = program("prepare", two, "--out", tmp_path / "store")
    assert answer.code == 2
    assert "another scan named 'same'" in answer.err
    assert (tmp_path / "store" / "subjects" / "same.safetensors").read_bytes() == kept


def test_a_manifest_with_an_unknown_name_is_refused(scan, tmp_path, program):
    tree = scan.write_hcp(tmp_path / "subject")
    (tmp_path / "manifest.tsv").write_text("name\tsplit\nsubjekt\ttest\n")
    answer = program("prepare", tree, "--out", tmp_path / "store", "--manifest", tmp_path / "manifest.tsv")
    assert answer.code == 2
    assert "names 'subjekt'" in answer.err
