import pytest

from tensorldm.imaging.mask_files import find_mask


def touch(folder, *names):
    for name in names:
        (folder / name).touch()


@pytest.mark.parametrize(
    "mask", ["dwi_mask.nii.gz", "dwi_mask.nii", "mask.nii.gz", "brain_mask.nii", "nodif_brain_mask.nii.gz"]
)
def test_a_mask_of_a_usual_name_is_found(tmp_path, mask):
    touch(tmp_path, "dwi.nii.gz", "b0.nii.gz", mask)
    assert find_mask(tmp_path / "dwi.nii.gz") == tmp_path / mask


def test_an_images_own_mask_comes_before_the_folders(tmp_path):
    touch(tmp_path, "mask.nii.gz", "first_mask.nii.gz")
    assert find_mask(tmp_path / "first.nii.gz") == tmp_path / "first_mask.nii.gz"
    assert find_mask(tmp_path / "second.nii.gz") == tmp_path / "mask.nii.gz"


@pytest.mark.parametrize("mask", ["sub-01_ses-a_desc-brain_mask.nii.gz", "sub-01_mask.nii.gz"])
def test_a_bids_mask_serves_the_series_whose_name_it_does_not_contradict(tmp_path, mask):
    touch(tmp_path, mask, "sub-01_ses-b_desc-brain_mask.nii.gz", "sub-01_ses-a_desc-lesion_mask.nii.gz")
    assert find_mask(tmp_path / "sub-01_ses-a_dir-AP_dwi.nii.gz") == tmp_path / mask


def test_a_preprocessed_series_takes_the_mask_of_its_own_space(tmp_path):
    touch(tmp_path, "sub-01_space-T1w_desc-brain_mask.nii.gz", "sub-01_space-MNI_desc-brain_mask.nii.gz")
    found = find_mask(tmp_path / "sub-01_space-T1w_desc-preproc_dwi.nii.gz")
    assert found == tmp_path / "sub-01_space-T1w_desc-brain_mask.nii.gz"


def test_masks_of_other_things_are_not_taken(tmp_path):
    touch(tmp_path, "sub-02_desc-brain_mask.nii.gz", "sub-01_desc-lesion_mask.nii.gz", "other_mask.nii.gz")
    assert find_mask(tmp_path / "sub-01_dwi.nii.gz") is None
