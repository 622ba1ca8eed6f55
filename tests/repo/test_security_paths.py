"""Names and links in a dataset, a manifest, a store or a sidecar lead nowhere but into their own folder."""

import json
import runpy
from pathlib import Path

import pytest

from tensorldm.cohort.templates import TemplateSource
from tensorldm.data.store import Store, safe_name
from tensorldm.errors import DataError
from tensorldm.imaging.layouts import read_bids
from tensorldm.imaging.tensor_sidecar import Provenance, read_provenance

_prepare = runpy.run_path(str(Path(__file__).parents[1] / "integration" / "prepare" / "conftest.py"))
scan, program = _prepare["scan"], _prepare["program"]


@pytest.fixture
def dataset(scan, tmp_path) -> Path:
    """Two subjects; the image of the second is a link to a private file elsewhere."""
    root = tmp_path / "study"
    for subject in ("good", "bad"):
        scan.write_bids(root, subject, "1")
    image = root / "sub-bad" / "ses-1" / "dwi" / "sub-bad_ses-1_dwi.nii.gz"
    private = image.rename(tmp_path / "private.nii.gz")
    image.symlink_to(private)
    return root


def test_a_link_out_of_a_dataset_is_refused_by_name_and_the_other_subjects_go_on(dataset, program, tmp_path):
    out = tmp_path / "out"
    answer = program("reconstruct", dataset, "--method", "minimum-norm", "--out", out)
    assert answer.code == 1
    assert "sub-bad_ses-1_dwi.nii.gz: a link that leads out of the dataset" in answer.err
    assert "private.nii.gz" in answer.err
    assert (out / "sub-good").is_dir()
    assert not (out / "sub-bad").exists()


def test_prepare_refuses_the_same_link(dataset, program, tmp_path):
    answer = program("prepare", dataset, "--out", tmp_path / "store", "--set", "voxel_size_mm=4")
    assert "a link that leads out of the dataset" in answer.err + answer.out
    assert answer.code != 0
    assert not list((tmp_path / "store").rglob("*bad*.safetensors"))


def test_a_link_given_by_hand_is_the_users_own_word(dataset, program, tmp_path):
    image = dataset / "sub-bad" / "ses-1" / "dwi" / "sub-bad_ses-1_dwi.nii.gz"
    answer = program("reconstruct", image, "--method", "minimum-norm", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err


@pytest.mark.parametrize("kind", ["folder", "bval", "mask"])
def test_every_file_of_a_scan_is_looked_at(kind, scan, tmp_path):
    root = scan.write_bids(tmp_path / "study", "one", "1")
    folder = root / "sub-one" / "ses-1" / "dwi"
    if kind == "folder":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        name = "sub-one_ses-1_dwi.bval" if kind == "bval" else "sub-one_ses-1_desc-brain_mask.nii.gz"
        (folder / name).unlink(missing_ok=True)
        (tmp_path / "elsewhere").write_text("5")
        (folder / name).symlink_to(tmp_path / "elsewhere")
    (found,) = read_bids(root)
    assert "leads out of the dataset" in found.problem


def test_a_link_inside_a_dataset_as_an_annex_has_them_is_followed(scan, tmp_path):
    root = scan.write_bids(tmp_path / "study", "one", "1")
    image = root / "sub-one" / "ses-1" / "dwi" / "sub-one_ses-1_dwi.nii.gz"
    (root / ".git" / "annex").mkdir(parents=True)
    kept = image.rename(root / ".git" / "annex" / "SHA256E-s1--0.nii.gz")
    image.symlink_to(kept)
    linked = tmp_path / "link-to-study"
    linked.symlink_to(root)
    for place in (root, linked):
        (found,) = read_bids(place)
        assert not found.problem


def test_a_series_whose_name_lacks_the_subject_belongs_to_its_folder(scan, tmp_path):
    folder = tmp_path / "study" / "sub-07" / "dwi"
    scan.write_files(folder / "odd_dwi.nii.gz")
    (found,) = read_bids(tmp_path / "study")
    assert found.person == "07"


@pytest.mark.parametrize("mask", ["/etc/passwd", "../../mask.nii.gz", "a/../../../mask.nii.gz", "..//../x.nii.gz"])
def test_a_sidecar_names_no_mask_elsewhere_on_the_disk(mask, tmp_path):
    (tmp_path / "tensor.json").write_text(json.dumps({"Mask": mask}))
    with pytest.raises(DataError, match=r"tensor\.json: names a mask outside its folder"):
        read_provenance(tmp_path / "tensor.nii.gz")


def test_a_mask_beside_a_tensor_or_in_the_next_folder_is_named_and_found_and_a_far_one_is_not_named(tmp_path):
    path = tmp_path / "run" / "tensors" / "tensor.nii.gz"
    path.parent.mkdir(parents=True)
    for mask in (path.parent / "mask.nii.gz", tmp_path / "run" / "masks" / "mask.nii.gz"):
        notes = Provenance(mask=mask).notes_for(path)
        (path.parent / "tensor.json").write_text(json.dumps(notes))
        found = read_provenance(path).mask
        assert found is not None
        assert found.resolve() == mask.resolve()
    assert "Mask" not in Provenance(mask=tmp_path / "far" / "away" / "mask.nii.gz").notes_for(path)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", ".hidden", "a/b", "a\x00b", "con\n"])
def test_a_subjects_name_cannot_leave_or_hide(name, tmp_path):
    try:
        plain = safe_name(name)
    except DataError:
        return
    assert (tmp_path / plain).resolve().parent == tmp_path.resolve()
    assert not plain.startswith(".")


def test_a_store_whose_index_names_a_file_elsewhere_is_refused(tmp_path):
    store = Store.create(tmp_path / "store", settings={}, made_by="a test")
    index = json.loads((store.folder / "store.json").read_text())
    index["entries"] = [{"name": "../../private", "sha256": "0", "shape": [1, 1, 1], "record": {}}]
    (store.folder / "store.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="damaged at 'entries"):
        Store.open(store.folder)


def test_a_manifest_makes_no_source_of_a_folder_elsewhere(tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "tensor.nii.gz").write_bytes(b"")
    folder = tmp_path / "templates"
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "tensor.nii.gz").write_bytes(b"")
    (folder / "manifest.tsv").write_text("name\tperson\tsplit\nmine\ta\ttrain\n../secret\tb\ttrain\n")
    source = TemplateSource(folder, split="train")
    assert list(source.names) == ["mine"]
    with pytest.raises(DataError, match="there is no anatomy"):
        source.load("../secret")
