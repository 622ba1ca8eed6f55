import numpy as np
import pytest

from tensorldm.imaging.volume import Space, Volume


@pytest.mark.parametrize("mirrored", [True, False])
def test_the_axes_are_the_affines_rotation_and_mirror(oblique, mirrored):
    space = oblique(voxel_size=(1.7, 2.0, 5.2), mirrored=mirrored)
    np.testing.assert_allclose(space.axes * space.voxel_size, space.affine[:3, :3], atol=1e-12)
    np.testing.assert_allclose(space.voxel_size, (1.7, 2.0, 5.2))
    assert space.is_flipped is not mirrored
    assert space.shear_degrees < 1e-6


def test_the_axes_of_a_sheared_grid_are_the_nearest_rotation():
    affine = np.eye(4)
    affine[0, 1] = np.tan(np.radians(4.0))
    space = Space((3, 3, 3), affine)
    assert space.shear_degrees == pytest.approx(4.0)
    np.testing.assert_allclose(space.axes @ space.axes.T, np.eye(3), atol=1e-12)
    # The nearest rotation shares the shear out evenly: two degrees for each of the two axes.
    assert np.degrees(np.arccos(space.axes[0, 0])) == pytest.approx(2.0, abs=1e-3)


def test_a_moved_grid_puts_its_voxels_where_the_old_grid_had_them_in_both_forms(oblique):
    other = np.diag([1.0, 1, 1, 1])
    other[:3, 3] = 7
    start = oblique()
    space = Space(start.shape, start.affine, qform=start.affine, sform=other @ start.affine, sform_code=4)
    to_here = np.diag([2.0, 1, 1, 1])
    to_here[:3, 3] = (1, 2, 0)
    moved = space.moved((2, 3, 4), to_here)
    here = np.array([3.0, 3, 2, 1])  # voxel (1, 1, 2) of the moved grid
    there = np.array([1.0, 1, 2, 1])
    np.testing.assert_allclose(moved.affine @ there, space.affine @ here)
    np.testing.assert_allclose(moved.sform @ there, space.sform @ here)
    np.testing.assert_allclose(moved.qform @ there, space.qform @ here)
    assert (moved.sform_code, moved.shape) == (4, (2, 3, 4))


def test_grids_are_the_same_up_to_the_rounding_of_a_header_and_no_further(oblique):
    space = oblique((100, 100, 60))
    rounded = Space(space.shape, space.affine.astype(np.float32).astype(np.float64))
    shifted = space.affine.copy()
    shifted[0, 3] += 0.2
    turned = oblique((100, 100, 60), degrees=(12.0, -20.0, 25.2))
    assert space.same_grid(rounded)
    assert not space.same_grid(Space(space.shape, shifted))
    assert not space.same_grid(turned)
    assert not space.same_grid(Space((100, 100, 59), space.affine))


def test_an_array_of_another_shape_is_refused(oblique):
    with pytest.raises(ValueError, match="does not lie on a grid"):
        Volume(np.zeros((6, 5, 3), np.float32), oblique((6, 5, 4)))
