from itertools import permutations, product

import numpy as np
import pytest

from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.grid import Grid
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.volume import Space, Volume

ORIENTATIONS = [(order, signs) for order in permutations(range(3)) for signs in product((1, -1), repeat=3)]


def stored(order, signs, turn):
    """An oblique RAS grid whose axes are stored in another order and sense."""
    matrix = np.zeros((3, 3))
    for axis in range(3):
        matrix[order[axis], axis] = signs[axis]
    affine = np.eye(4)
    affine[:3, :3] = turn @ matrix @ np.diag([1.5, 2.0, 2.5])
    affine[:3, 3] = (5, 6, 7)
    return Space((5, 4, 3), affine)


@pytest.mark.parametrize(("order", "signs"), ORIENTATIONS)
def test_every_voxel_stays_where_it_is_in_the_world_and_the_axes_point_to_ras(oblique, order, signs):
    space = stored(order, signs, oblique(mirrored=False).axes)
    # Each voxel holds its own position in the world.
    indices = np.stack(np.meshgrid(*map(np.arange, space.shape), indexing="ij"), axis=-1)
    world = indices @ space.affine[:3, :3].T + space.affine[:3, 3]
    step = to_ras(space)
    moved = step.forward(world)
    indices = np.stack(np.meshgrid(*map(np.arange, step.target.shape), indexing="ij"), axis=-1)
    expected = indices @ step.target.affine[:3, :3].T + step.target.affine[:3, 3]
    np.testing.assert_allclose(moved, expected, atol=1e-9)
    assert (np.diag(step.target.affine)[:3] > 0).all()
    assert (np.abs(step.target.axes).argmax(axis=0) == [0, 1, 2]).all()
    everywhere = np.ones(step.target.shape, bool)
    np.testing.assert_array_equal(step.inverse(moved, everywhere), world)
    mask = np.random.default_rng(0).random(space.shape) > 0.5
    np.testing.assert_array_equal(step.inverse_mask(step.forward_mask(mask)), mask)


@pytest.mark.parametrize(("order", "signs"), ORIENTATIONS)
def test_directions_and_tensors_keep_their_place_in_the_world(oblique, order, signs):
    space = stored(order, signs, oblique(mirrored=False).axes)
    grid = Grid(space, (to_ras(space),))
    directions = np.random.default_rng(0).normal(size=(7, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    before = GradientTable(np.full(7, 1000.0), directions)
    after = grid.forward_gradients(before)
    np.testing.assert_allclose(after.to_scanner(grid.working), before.to_scanner(space), atol=1e-12)
    # A field of one direction in working axes comes back as the same direction in native axes.
    inside = np.ones(grid.working.shape, bool)
    outer = np.outer(after.directions[0], after.directions[0])[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    field = Volume(np.broadcast_to(outer, (*grid.working.shape, 6)).copy(), grid.working)
    expected = np.outer(directions[0], directions[0])[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    back = grid.inverse_tensor(field, inside)
    np.testing.assert_allclose(back.data, np.broadcast_to(expected, back.data.shape), atol=1e-12)


def test_a_series_keeps_its_volumes_in_order():
    space = Space((2, 3, 4), np.diag([-2.0, 2, 2, 1]))
    data = np.random.default_rng(0).random((2, 3, 4, 5))
    np.testing.assert_array_equal(to_ras(space).forward(data), data[::-1])
