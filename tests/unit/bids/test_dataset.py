"""Which series a BIDS dataset has, found with pybids; files are empty, since only names count."""

import json
import sys

import pytest

from tensorldm.bids.dataset import find_series
from tensorldm.errors import ConfigError, DataError, ToolError

pytest.importorskip("bids")


@pytest.fixture
def dataset(tmp_path):
    def make(*names: str):
        description = {"Name": "test", "BIDSVersion": "1.10.0"}
        (tmp_path / "dataset_description.json").write_text(json.dumps(description))
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        return tmp_path

    return make


def series(label, *more):
    stem = f"sub-{label}/dwi/sub-{label}_dwi"
    return [f"{stem}.nii.gz", f"{stem}.bval", f"{stem}.bvec", *more]


def test_every_series_is_found_in_order_with_what_belongs_to_it(dataset):
    root = dataset(
        *series("02"), *series("01", "sub-01/dwi/sub-01_desc-brain_mask.nii.gz"), "sub-01/anat/sub-01_T1w.nii.gz"
    )
    one, two = find_series(root)
    assert (one.name, one.entities, two.name) == ("sub-01", "sub-01", "sub-02")
    folder = root / "sub-01" / "dwi"
    assert one.images == (folder / "sub-01_dwi.nii.gz",)
    assert (one.bval, one.bvec) == (folder / "sub-01_dwi.bval", folder / "sub-01_dwi.bvec")
    assert one.mask == folder / "sub-01_desc-brain_mask.nii.gz"
    assert two.mask is None


def test_gradients_are_inherited_from_higher_up(dataset):
    root = dataset(
        "sub-01/dwi/sub-01_dwi.nii.gz", "sub-02/dwi/sub-02_dwi.nii.gz", "dwi.bval", "sub-02/sub-02_dwi.bval", "dwi.bvec"
    )
    one, two = find_series(root)
    assert (one.bval, one.bvec) == (root / "dwi.bval", root / "dwi.bvec")
    assert (two.bval, two.bvec) == (root / "sub-02" / "sub-02_dwi.bval", root / "dwi.bvec")


def test_missing_gradients_are_told_later_by_their_own_name(dataset):
    (one,) = find_series(dataset("sub-01/dwi/sub-01_dwi.nii.gz"))
    assert one.bval == one.image.with_name("sub-01_dwi.bval")


def test_the_gradients_of_another_run_are_not_taken(dataset):
    stem = "sub-01/dwi/sub-01_run-"
    root = dataset(f"{stem}1_dwi.nii.gz", f"{stem}2_dwi.nii.gz", f"{stem}2_dwi.bval", f"{stem}2_dwi.bvec")
    one, two = find_series(root)
    assert one.bval == one.image.with_name("sub-01_run-1_dwi.bval")
    assert two.bval == two.image.with_name("sub-01_run-2_dwi.bval")


def test_phase_images_derivatives_and_single_references_are_no_series(dataset):
    root = dataset(
        *series("01"),
        "sub-01/dwi/sub-01_part-phase_dwi.nii.gz",
        "sub-01/dwi/sub-01_sbref.nii.gz",
        "derivatives/other/sub-01/dwi/sub-01_desc-preproc_dwi.nii.gz",
        "sourcedata/sub-01/dwi/sub-01_dwi.nii.gz",
    )
    assert [each.name for each in find_series(root)] == ["sub-01"]


def test_sessions_and_runs_are_told_apart_and_can_be_chosen(dataset):
    names = [
        f"sub-01/ses-{session}/dwi/sub-01_ses-{session}_run-{run}_dwi.nii.gz" for session in "ab" for run in (1, 2)
    ]
    root = dataset(*names, *series("02"))
    assert len(find_series(root)) == 5
    chosen = find_series(root, participants=["sub-01"], sessions=["b"])
    assert [each.name for each in chosen] == ["sub-01_ses-b_run-1", "sub-01_ses-b_run-2"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"participants": ["sub-09"]}, "--participant-label 09: the dataset has none of this name. It has 01, 02."),
        ({"sessions": ["x"]}, "--session-label x: the dataset has none of this name. It has none at all."),
    ],
)
def test_labels_that_the_dataset_does_not_have_are_refused(dataset, options, words):
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        find_series(dataset(*series("01"), *series("02")), **options)


def test_a_folder_without_description_or_without_series_is_refused(dataset, tmp_path):
    with pytest.raises(DataError, match=r"no dataset_description\.json in it"):
        find_series(tmp_path)
    with pytest.raises(DataError, match="no diffusion series"):
        find_series(dataset("sub-01/anat/sub-01_T1w.nii.gz"))


def test_a_link_that_leads_out_of_the_dataset_is_not_followed(dataset, tmp_path_factory):
    root = dataset(*series("01"))
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.nii.gz"
    secret.touch()
    image = root / "sub-01" / "dwi" / "sub-01_dwi.nii.gz"
    image.unlink()
    image.symlink_to(secret)
    (one,) = find_series(root)
    assert "leads out of the dataset" in one.problem


def test_without_pybids_the_extra_is_named(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "bids", None)
    with pytest.raises(ToolError, match=r"pip install 'tensorldm\[bids\]'"):
        find_series(dataset(*series("01")))
