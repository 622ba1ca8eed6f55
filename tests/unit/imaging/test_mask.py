import numpy as np
import pytest
from scipy import ndimage

from tensorldm.errors import DataError
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.mask import find_brain, mean_b0, read_brain_mask
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.volume import Space, Volume


def head(shape=(40, 44, 36), size=(4.0, 4.0, 4.0)):
    """A bright ball of a brain with a dark ventricle, a bright eye on a thin nerve, and noise in the air."""
    space = Space(shape, np.diag([*size, 1.0]))
    indices = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    place = (indices - (np.array(shape) - 1) / 2) * size
    distance = np.linalg.norm(place - [0, -12, 0], axis=-1)
    brain = distance < 55
    eye = np.linalg.norm(place - [0, 70, 0], axis=-1) < 12
    nerve = (np.abs(place[..., 0]) < 3) & (np.abs(place[..., 2]) < 3) & (np.abs(place[..., 1] - 50) < 15)
    values = np.random.default_rng(0).rayleigh(10.0, shape) + 500 * (brain | nerve) + 900 * eye
    values[distance < 12] = 20
    return Volume(values.astype(np.float32), space), brain, eye


def overlap(a, b):
    return 2 * (a & b).sum() / (a.sum() + b.sum())


def test_the_brain_is_found_whole_one_voxel_inside_its_surface_without_the_eye():
    volume, brain, eye = head()
    found = find_brain(volume)
    assert not (found & eye).any()
    assert not (found & ~brain).any()
    assert overlap(found, ndimage.binary_erosion(brain)) > 0.95
    assert ndimage.label(found)[1] == 1
    assert found[20, 18, 17], "the dark ventricle is brain too"


def test_the_amount_of_air_around_the_head_changes_nothing():
    volume, _, _ = head()
    more = np.random.default_rng(1).rayleigh(10.0, (60, 64, 36)).astype(np.float32)
    more[10:50, 10:54] = volume.data
    found = find_brain(Volume(more, Space(more.shape, volume.space.affine)))
    assert overlap(found[10:50, 10:54], find_brain(volume)) > 0.99


def test_a_slab_keeps_its_end_slices_and_a_hole_that_it_opens_is_filled():
    volume, brain, _ = head()
    slab = slice(16, 21)
    cut = Volume(np.ascontiguousarray(volume.data[:, :, slab]), Space((40, 44, 5), volume.space.affine))
    found = find_brain(cut)
    for z in (0, 4):
        assert overlap(found[:, :, z], ndimage.binary_erosion(brain[:, :, slab][:, :, z])) > 0.93
    assert found[20, 18, :].all()


def test_thick_slices_are_not_eroded_away():
    volume, brain, _ = head((40, 44, 18), (4.0, 4.0, 8.0))
    found = find_brain(volume)
    top, bottom = (np.flatnonzero(mask.any(axis=(0, 1))) for mask in (found, brain))
    assert abs(top.min() - bottom.min()) <= 1
    assert abs(top.max() - bottom.max()) <= 1


def test_a_finer_image_of_the_same_head_gives_the_same_brain():
    volume, brain, eye = head((112, 124, 100), (1.4, 1.4, 1.4))
    found = find_brain(volume)
    assert not (found & eye).any()
    assert overlap(found, ndimage.binary_erosion(brain, iterations=2)) > 0.96


def test_an_image_of_nothing_is_told():
    with pytest.raises(DataError, match="No brain was found"):
        find_brain(Volume(np.zeros((12, 12, 12), np.float32), Space((12, 12, 12), np.eye(4))))


def test_the_mean_b0_is_over_b0s_alone_and_their_absence_is_told(oblique):
    data = np.arange(4, dtype=np.float32) * np.ones((6, 5, 4, 4), np.float32)
    directions = np.array([[0.0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]])
    gradients = GradientTable(np.array([0.0, 1000, 5, 1000]), directions)
    np.testing.assert_allclose(mean_b0(Volume(data, oblique()), gradients).data, 1.0)
    with pytest.raises(DataError, match=r"No volume has a b-value near 0 \(the lowest is 1000"):
        mean_b0(Volume(data[..., [1, 3]], oblique()), gradients.select([1, 3]))


def test_a_users_mask_must_be_on_the_grid_and_hold_something(tmp_path, oblique):
    space = oblique()
    mask = np.random.default_rng(0).random(space.shape) > 0.5
    write_mask(tmp_path / "mask.nii.gz", mask, space=space)
    np.testing.assert_array_equal(read_brain_mask(tmp_path / "mask.nii.gz", space), mask)
    with pytest.raises(DataError, match=r"mask\.nii\.gz: the mask has \(6, 5, 4\) voxels, the scan \(6, 5, 3\)"):
        read_brain_mask(tmp_path / "mask.nii.gz", oblique((6, 5, 3)))
    with pytest.raises(DataError, match="the mask has another affine"):
        read_brain_mask(tmp_path / "mask.nii.gz", oblique(degrees=(0.0, 0.0, 0.0)))
    write_mask(tmp_path / "empty.nii.gz", np.zeros(space.shape, bool), space=space)
    with pytest.raises(DataError, match=r"empty\.nii\.gz: the mask is empty"):
        read_brain_mask(tmp_path / "empty.nii.gz", space)
