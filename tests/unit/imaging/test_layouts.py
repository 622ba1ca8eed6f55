from pathlib import Path

import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.layouts import find_scans, list_files, read_bids


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def hcp(root, subject, *extra):
    touch(root, *(f"{subject}/T1w/Diffusion/{name}" for name in ("data.nii.gz", "bvals", "bvecs", *extra)))


def test_an_hcp_tree_gives_its_subjects_with_mask_and_field(tmp_path):
    hcp(tmp_path, "100307", "nodif_brain_mask.nii.gz", "grad_dev.nii.gz")
    hcp(tmp_path, "100206")
    touch(tmp_path, "readme.txt", "100408/T1w/T1w.nii.gz")
    first, second = find_scans(tmp_path)
    folder = tmp_path / "100307" / "T1w" / "Diffusion"
    assert (first.name, second.name, second.person) == ("100206", "100307", "100307")
    assert (second.dwi, second.bval, second.bvec) == (folder / "data.nii.gz", folder / "bvals", folder / "bvecs")
    assert second.mask == folder / "nodif_brain_mask.nii.gz"
    assert second.grad_dev == folder / "grad_dev.nii.gz"
    assert (first.mask, first.grad_dev) == (None, None)


def test_one_hcp_subject_may_be_given_by_itself(tmp_path):
    hcp(tmp_path, "100307")
    assert [scan.name for scan in find_scans(tmp_path / "100307")] == ["100307"]


def test_an_incomplete_subject_is_listed_so_that_reading_it_can_tell_what_is_missing(tmp_path):
    touch(tmp_path, "100307/T1w/Diffusion/bvals")
    (scan,) = find_scans(tmp_path)
    assert not scan.dwi.exists()


def test_a_bids_dataset_gives_every_magnitude_series_and_its_person(tmp_path):
    for name in ("sub-01/ses-a/dwi/sub-01_ses-a_dir-AP", "sub-01/ses-b/dwi/sub-01_ses-b_dir-PA", "sub-02/dwi/sub-02"):
        touch(tmp_path, *(f"{name}_dwi.{suffix}" for suffix in ("nii.gz", "bval", "bvec", "json")))
    touch(tmp_path, "sub-02/dwi/sub-02_sbref.nii.gz", "sub-02/dwi/sub-02_part-phase_dwi.nii.gz")
    touch(tmp_path, "derivatives/x/sub-02/dwi/sub-02_dwi.nii.gz", "sub-02/anat/sub-02_T1w.nii.gz")
    scans = find_scans(tmp_path)
    assert [(s.name, s.person) for s in scans] == [
        ("sub-01_ses-a_dir-AP", "01"),
        ("sub-01_ses-b_dir-PA", "01"),
        ("sub-02", "02"),
    ]
    assert scans[2].bvec == tmp_path / "sub-02/dwi/sub-02_dwi.bvec"
    assert scans[2].json == tmp_path / "sub-02/dwi/sub-02_dwi.json"


def test_gradients_are_inherited_from_the_nearest_folder_whose_names_apply(tmp_path):
    touch(tmp_path, "dwi.json", "dwi.bval", "dwi.bvec", "acq-fast_dwi.bval")
    touch(tmp_path, "sub-01/sub-01_dwi.bvec", "sub-01/sub-01_dir-PA_dwi.bval")
    touch(tmp_path, "sub-01/dwi/sub-01_dir-AP_dwi.nii.gz", "sub-02/dwi/sub-02_acq-fast_dwi.nii.gz")
    first, second = read_bids(tmp_path)
    assert first.bvec == tmp_path / "sub-01/sub-01_dwi.bvec"
    assert first.bval == tmp_path / "dwi.bval"  # dir-PA is not in the image's name
    assert first.json == tmp_path / "dwi.json"
    assert second.bval == tmp_path / "acq-fast_dwi.bval"  # on one level the more specific file
    assert second.bvec == tmp_path / "dwi.bvec"


def test_a_bids_series_without_gradients_names_where_they_were_expected(tmp_path):
    touch(tmp_path, "sub-01/dwi/sub-01_dwi.nii.gz")
    (scan,) = find_scans(tmp_path)
    assert scan.bval == tmp_path / "sub-01/dwi/sub-01_dwi.bval"
    assert not scan.bval.exists()


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for folder in ("alice", "bob"):
        touch(tmp_path, *(f"{folder}/dwi.{suffix}" for suffix in ("nii.gz", "bval", "bvec")))
    scans = list_files([tmp_path / "alice/dwi.nii.gz", tmp_path / "bob/dwi.nii.gz"])
    assert [(s.name, s.person) for s in scans] == [("alice_dwi", "alice_dwi"), ("bob_dwi", "bob_dwi")]
    assert find_scans(tmp_path / "alice/dwi.nii.gz")[0].name == "dwi"
    with pytest.raises(DataError, match="two scans would have this name"):
        list_files([tmp_path / "alice/dwi.nii.gz"] * 2)


def test_a_mask_beside_a_series_belongs_to_it(tmp_path):
    touch(tmp_path, "sub-01/dwi/sub-01_dwi.nii.gz", "sub-01/dwi/sub-01_desc-brain_mask.nii.gz")
    touch(tmp_path, "loose/dwi.nii.gz", "loose/mask.nii.gz", "bare/dwi.nii.gz")
    assert find_scans(tmp_path)[0].mask == tmp_path / "sub-01/dwi/sub-01_desc-brain_mask.nii.gz"
    assert find_scans(tmp_path / "loose/dwi.nii.gz")[0].mask == tmp_path / "loose/mask.nii.gz"
    assert find_scans(tmp_path / "bare/dwi.nii.gz")[0].mask is None


def test_virtual_subjects_of_one_anatomy_are_one_person(tmp_path):
    heads = "sub-01\thead/1\tanna\ttest\nsub-02\thead/2\tanna\ttest\n"
    (tmp_path / "participants.tsv").write_text("participant_id\tanatomy\tanatomy_source\tsplit\n" + heads)
    touch(tmp_path, *(f"sub-0{number}/dwi/sub-0{number}_dwi.nii.gz" for number in (1, 2, 3)))
    assert [(scan.person, scan.split) for scan in find_scans(tmp_path)] == [
        ("anna", "test"),
        ("anna", "test"),
        ("03", ""),
    ]


def test_a_virtual_hcp_tree_names_its_anatomies_beside_the_truth(tmp_path):
    hcp(tmp_path, "900001")
    touch(tmp_path, "truth/subjects.tsv")
    (tmp_path / "truth/subjects.tsv").write_text("subject\tanatomy_source\tsplit\n900001\tberta\ttrain\n")
    assert [(scan.person, scan.split) for scan in find_scans(tmp_path)] == [("berta", "train")]
    assert find_scans(tmp_path / "900001")[0].person == "berta"


def test_a_participants_table_of_real_people_changes_nothing(tmp_path):
    (tmp_path / "participants.tsv").write_bytes(b"participant_id\tsex\tname\nsub-01\tF\tJ\xf6rg\n")
    touch(tmp_path, "sub-01/dwi/sub-01_dwi.nii.gz")
    assert [(scan.person, scan.split) for scan in find_scans(tmp_path)] == [("01", "")]


def test_an_mrtrix_table_beside_a_file_is_enough(tmp_path):
    touch(tmp_path, "dwi.nii.gz", "dwi.b")
    (scan,) = list_files([tmp_path / "dwi.nii.gz"])
    assert (scan.bval, scan.bvec) == (None, None)


def test_what_is_no_layout_is_told(tmp_path):
    with pytest.raises(DataError, match=r"neither an HCP tree .* nor a BIDS dataset"):
        find_scans(tmp_path)
    with pytest.raises(DataError, match="there is no such folder"):
        find_scans(tmp_path / "nowhere")
    with pytest.raises(DataError, match="not the name of a NIfTI file"):
        list_files([tmp_path / "scan.dcm"])
