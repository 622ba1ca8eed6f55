"""Slices: in the world's orientation, at the places they say, in the shape of the head."""

import nibabel as nib
import numpy as np
import pytest

from tensorldm.imaging.volume import Space
from tensorldm.report.slices import PLANES, choose_cuts, cuts_at

SHAPE = (14, 16, 12)
AFFINE = np.array([[2.0, 0, 0, -13], [0, 2, 0, -15], [0, 0, 3, -9], [0, 0, 0, 1]])
SPACE = Space(SHAPE, AFFINE)


@pytest.fixture
def mask() -> np.ndarray:
    mask = np.zeros(SHAPE, dtype=bool)
    mask[2:13, 1:15, 2:11] = True
    return mask


def world(axis: int) -> np.ndarray:
    """An image whose values are x, y or z in mm."""
    indices = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"), axis=-1)
    return np.asarray(indices @ AFFINE[:3, :3].T + AFFINE[:3, 3])[..., axis].astype(np.float32)


@pytest.mark.parametrize("codes", ["LAS", "PIR", "SLA"])
def test_the_same_head_stored_in_another_order_gives_the_same_slices(mask, codes):
    image = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    turn = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt("RAS"), nib.orientations.axcodes2ornt(codes))
    affine = AFFINE @ nib.orientations.inv_ornt_aff(turn, SHAPE)
    moved, moved_mask = (nib.orientations.apply_orientation(each, turn) for each in (image, mask))
    here, there = choose_cuts(SPACE, mask, count=4), choose_cuts(Space(moved.shape, affine), moved_mask, count=4)
    for plane in PLANES:
        np.testing.assert_array_equal(there.row(np.ascontiguousarray(moved), plane), here.row(image, plane))
        assert there.millimetres(plane) == pytest.approx(here.millimetres(plane))
        assert there.size_mm(plane) == pytest.approx(here.size_mm(plane))


@pytest.mark.parametrize(("plane", "axis"), [("sagittal", 0), ("coronal", 1), ("axial", 2)])
def test_every_slice_lies_where_it_says(mask, plane, axis):
    cuts = choose_cuts(SPACE, mask, count=3)
    row = cuts.row(world(axis), plane)
    parts = np.split(row, len(cuts.places_of(plane)), axis=1)
    for part, place in zip(parts, cuts.millimetres(plane), strict=True):
        assert np.unique(part) == pytest.approx([place])


@pytest.mark.parametrize(("plane", "across", "up"), [("sagittal", 1, 2), ("coronal", 0, 2), ("axial", 0, 1)])
def test_right_front_and_top_are_where_the_caption_puts_them(mask, plane, across, up):
    cuts = cuts_at(SPACE, mask, point=(7, 8, 6))
    assert (np.diff(cuts.row(world(across), plane), axis=1) > 0).all(), "rises to the right"
    assert (np.diff(cuts.row(world(up), plane), axis=0) < 0).all(), "falls from the top row down"


def test_rows_are_as_long_and_high_as_the_brain_in_millimetres(mask):
    cuts = choose_cuts(SPACE, mask, count=1)
    # 11 x 14 x 9 voxels of the mask and one around it, 2 x 2 x 3 mm each
    assert cuts.size_mm("axial") == (26.0, 32.0)
    assert cuts.size_mm("coronal") == (26.0, 33.0)
    assert cuts.size_mm("sagittal") == (32.0, 33.0)


def test_a_plane_of_wide_slices_shows_fewer_of_them(mask):
    cuts = choose_cuts(SPACE, mask, count=8)
    assert [len(cuts.places_of(plane)) for plane in PLANES] == [8, 8, round(8 * 26 / 32)]
    for plane in PLANES:
        assert len(set(cuts.places_of(plane))) == len(cuts.places_of(plane))
