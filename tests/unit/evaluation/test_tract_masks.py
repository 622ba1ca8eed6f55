from pathlib import Path

import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.evaluation.tract_masks import MaskSource, find_masks
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.volume import Space

SPACE = Space((4, 4, 4), np.eye(4))


def put(*places):
    for place in places:
        write_mask(place, np.ones(SPACE.shape, dtype=bool), space=SPACE)


@pytest.mark.parametrize(
    "inside",
    [
        "900001",
        "900001/bundle_segmentations",
        "900001/bundles",
        "900001/tractseg_output/bundle_segmentations",
        "truth/900001/bundles",
        "derivatives/truth/900001/dwi/bundles",
    ],
)
def test_a_subjects_masks_are_found_where_tractseg_and_virtual_cohorts_put_them(tmp_path, inside):
    put(tmp_path / inside / "CST_left.nii.gz", tmp_path / inside / "CG_left.nii.gz")
    if "truth" in inside:  # other images of the truth lie above, and are no bundles
        put(tmp_path / inside.rpartition("/")[0] / "desc-clean_tensor.nii.gz")
    files = MaskSource(find_masks(tmp_path, "900001")).files([])
    assert {path.name for path in files} == {"CST_left.nii.gz", "CG_left.nii.gz"}
    with pytest.raises(DataError, match="no bundle masks of 900002"):
        find_masks(tmp_path, "900002")


@pytest.mark.parametrize("subject", ["..", "../elsewhere", "/elsewhere", "", "a/b"])
@pytest.mark.parametrize("given", ["masks", "masks/{subject}"])
def test_a_subjects_name_from_a_sidecar_leads_to_no_other_folder(tmp_path, given, subject):
    put(*(tmp_path / place / "CST_left.nii.gz" for place in (".", "elsewhere", "masks", "masks/a/b")))
    with pytest.raises(DataError, match="leads to another folder"):
        find_masks(tmp_path / given, subject)


def test_a_path_can_say_where_the_subjects_name_stands(tmp_path):
    put(tmp_path / "a" / "masks-of-sub-1" / "CST_left.nii.gz")
    pattern = tmp_path / "a" / "masks-of-{subject}"
    assert find_masks(pattern, "sub-1") == tmp_path / "a" / "masks-of-sub-1"
    with pytest.raises(DataError, match="masks-of-sub-2: there is no such folder"):
        find_masks(pattern, "sub-2")


def test_masks_of_one_subject_are_not_taken_for_everybodys(tmp_path):
    put(tmp_path / "CST_left.nii.gz")
    with pytest.raises(DataError, match="no bundle masks of sub-1"):
        find_masks(tmp_path, "sub-1")


def test_every_mask_that_decides_is_among_the_files(tmp_path):
    put(
        tmp_path / "bundle_segmentations" / "CST_left.nii.gz",
        tmp_path / "endings_segmentations" / "CST_left_b.nii.gz",
        tmp_path / "endings_segmentations" / "CST_left_e.nii.gz",
        tmp_path / "exclusions" / "CST_left.nii.gz",
        tmp_path / "exclusions" / "CG_left.nii.gz",
    )
    found = [path.relative_to(tmp_path) for path in MaskSource(tmp_path).files(["CST_left"])]
    assert found == [
        Path("bundle_segmentations/CST_left.nii.gz"),
        Path("endings_segmentations/CST_left_b.nii.gz"),
        Path("endings_segmentations/CST_left_e.nii.gz"),
        Path("exclusions/CST_left.nii.gz"),
    ]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DataError, match="there is no such folder"):
        find_masks(tmp_path / "nothing", "sub-1")
