"""Which files make a scan, and what its results are called."""

from pathlib import Path

import pytest

from tensorldm.errors import DataError
from tensorldm.reconstruct.inputs import Given, gather
from tensorldm.reconstruct.naming import naming_for


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return folder / names[0]


def test_gradients_and_mask_are_found_beside_a_series(tmp_path):
    dwi = touch(tmp_path, "dwi.nii.gz", "dwi.bval", "dwi.bvec", "mask.nii.gz")
    (scan,) = gather([dwi], given=Given())
    assert (scan.bval, scan.bvec, scan.mask) == tuple(
        tmp_path / name for name in ("dwi.bval", "dwi.bvec", "mask.nii.gz")
    )
    assert naming_for(scan, alone=True).image("fa") == Path("fa.nii.gz")


def test_what_the_user_names_goes_before_what_is_found(tmp_path):
    dwi = touch(tmp_path, "dwi.nii.gz", "dwi.bval", "dwi.bvec", "mask.nii.gz")
    given = Given(bval=Path("my.bval"), bvec=Path("my.bvec"), mask=Path("my.nii.gz"))
    (scan,) = gather([dwi], given=given)
    assert (scan.bval, scan.bvec, scan.mask) == (given.bval, given.bvec, given.mask)
    (scan,) = gather([dwi], given=Given(grad=Path("my.b")))
    assert (scan.bval, scan.bvec, scan.grad) == (None, None, Path("my.b"))


def test_scans_of_the_same_name_are_told_apart_by_their_folders(tmp_path):
    images = [touch(tmp_path / who, "dwi.nii.gz") for who in ("anna", "bert")]
    scans = gather(images, given=Given())
    assert [str(naming_for(scan, alone=False).image("md")) for scan in scans] == [
        "anna_dwi/md.nii.gz",
        "bert_dwi/md.nii.gz",
    ]


def test_a_bids_name_gives_bids_names_alone_or_not(tmp_path):
    dwi = touch(tmp_path, "sub-01_ses-b_dir-AP_dwi.nii.gz", "sub-01_ses-b_dir-AP_desc-brain_mask.nii.gz")
    (scan,) = gather([dwi], given=Given())
    assert scan.mask is not None
    naming = naming_for(scan, alone=True)
    folder = Path("sub-01/ses-b/dwi")
    assert naming.image("v1_cone") == folder / "sub-01_ses-b_dir-AP_space-orig_model-DTI_param-V1Cone_dwimap.nii.gz"
    assert naming.image("mask") == folder / "sub-01_ses-b_dir-AP_space-orig_desc-brain_mask.nii.gz"


def test_joined_files_are_one_scan(tmp_path):
    parts = [touch(tmp_path, f"{name}.nii.gz") for name in ("b0", "x", "y", "z")]
    (scan,) = gather(parts, given=Given(), join=True)
    assert scan.images == tuple(parts)


def test_nothing_is_refused():
    with pytest.raises(DataError, match="No input"):
        gather([], given=Given())
