import numpy as np
import pytest

from tensorldm.imaging.box import around, to_multiple, to_shape


@pytest.mark.parametrize("shape", [(9, 8, 10), (4, 5, 2), (8, 3, 4)])
def test_voxels_stay_where_they_are_in_the_world(oblique, shape):
    space = oblique()
    box = to_shape(space, shape)
    assert box.target.shape == shape
    data = np.random.default_rng(0).random((*space.shape, 2)) + 1
    moved = box.forward(data)
    for index in np.argwhere(moved[..., 0] > 0):
        place = np.linalg.inv(space.affine) @ box.target.affine @ [*index, 1]
        np.testing.assert_allclose(place, np.rint(place), atol=1e-9)
        x, y, z = np.rint(place[:3]).astype(int)
        np.testing.assert_array_equal(moved[tuple(index)], data[x, y, z])


def test_padding_comes_back_exactly_and_cropping_with_zeros(oblique):
    space = oblique((5, 6, 7))
    data = np.random.default_rng(0).random(space.shape) + 1
    everywhere = np.ones((8, 8, 8), bool)
    padded = to_multiple(space, 8)
    assert padded.target.shape == (8, 8, 8)
    np.testing.assert_array_equal(padded.inverse(padded.forward(data), everywhere), data)
    cropped = to_shape(space, (3, 4, 5))
    back = cropped.inverse(cropped.forward(data), np.ones((3, 4, 5), bool))
    np.testing.assert_array_equal(back[1:4, 1:5, 1:6], data[1:4, 1:5, 1:6])
    assert back.sum() == pytest.approx(data[1:4, 1:5, 1:6].sum())


def test_a_box_around_a_mask_keeps_a_margin_inside_the_grid(oblique):
    mask = np.zeros((10, 10, 10), bool)
    mask[4:6, 0:3, 7] = True
    box = around(oblique((10, 10, 10)), mask, margin=2)
    assert box.start == (2, 0, 5)
    assert box.target.shape == (6, 5, 5)
    assert box.forward_mask(mask).sum() == mask.sum()
    np.testing.assert_array_equal(box.inverse_mask(box.forward_mask(mask)), mask)


def test_a_box_beyond_the_grid_is_empty_and_does_no_harm(oblique):
    space = oblique((4, 4, 4))
    box = to_shape(to_shape(space, (20, 4, 4)).target, (4, 4, 4))
    assert box.target.same_grid(space)
