import numpy as np
import pytest
import torch

from tensorldm.dti.logarithm import exp, log
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.kernels import blur_weights, cubic_weights, linear_weights
from tensorldm.imaging.resample import to_voxel_size
from tensorldm.imaging.volume import Space, Volume


def grid_of(shape, size):
    return Space(shape, np.diag([*size, 1.0]))


def positions(space):
    indices = np.stack(np.meshgrid(*map(np.arange, space.shape), indexing="ij"), axis=-1)
    return indices @ space.affine[:3, :3].T + space.affine[:3, 3]


def tensors(count, seed=0):
    roots = np.random.default_rng(seed).normal(size=(count, 3, 3)) * 0.02
    matrices = roots @ roots.swapaxes(-1, -2) + 2e-4 * np.eye(3)
    return matrices[:, [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]


@pytest.mark.parametrize("weights", [cubic_weights, linear_weights])
def test_weights_sum_to_one_and_interpolate(weights):
    matrix = weights(np.linspace(-1.5, 9.5, 40), 9)
    np.testing.assert_allclose(matrix.sum(axis=1), 1)
    np.testing.assert_allclose(weights(np.arange(9.0), 9), np.eye(9), atol=1e-12)


def test_cubic_weights_are_exact_for_a_parabola_and_linear_ones_for_a_line():
    between = np.linspace(1.0, 7.0, 25)
    old = np.arange(9.0)
    np.testing.assert_allclose(cubic_weights(between, 9) @ old**2, between**2)
    np.testing.assert_allclose(linear_weights(between, 9) @ old, between)


def test_the_blur_has_the_width_that_variances_ask_for():
    row = blur_weights(101, old_mm=1.25, new_mm=2.0)[50]
    x = (np.arange(101) - 50) * 1.25
    assert row.sum() == pytest.approx(1)
    fwhm = np.sqrt(8 * np.log(2) * (row * x**2).sum())
    # Half a voxel of sigma is sampled coarsely; a wrong formula would be off by far more than 5 %.
    assert fwhm == pytest.approx(np.sqrt(2.0**2 - 1.25**2), rel=0.05)
    np.testing.assert_array_equal(blur_weights(5, old_mm=3.0, new_mm=2.0), np.eye(5))


def test_voxels_within_two_percent_are_left_alone():
    for side in (1.97, 2.03):
        assert len(working_grid(grid_of((8, 8, 8), (side, 2.0, 2.0))).steps) == 1
    assert len(working_grid(grid_of((8, 8, 8), (1.95, 2.0, 2.0))).steps) == 2
    step = to_voxel_size(grid_of((8, 8, 8), (2.0, 2.02, 3.0)))
    np.testing.assert_allclose(step.target.voxel_size, (2.0, 2.02, 2.0))


@pytest.mark.parametrize("size", [(1.25, 1.25, 1.25), (1.72, 1.72, 5.2), (3.5, 3.5, 4.2)])
def test_a_smooth_field_keeps_its_values_at_every_place_in_the_world(size):
    space = grid_of((24, 22, 14), size)
    step = to_voxel_size(space)
    np.testing.assert_allclose(step.target.voxel_size, 2.0)
    field = positions(space) @ [3.0, -2.0, 1.0] + 500
    moved, expected = step.forward(field), positions(step.target) @ [3.0, -2.0, 1.0] + 500
    inner = (slice(5, -5),) * 3
    np.testing.assert_allclose(moved[inner], expected[inner], rtol=1e-6)
    # The whole field of view is kept.
    low, high = positions(space).min(axis=(0, 1, 2)), positions(space).max(axis=(0, 1, 2))
    assert (positions(step.target).min(axis=(0, 1, 2)) - 1 <= low - np.array(size) / 2 + 0.03).all()
    assert (positions(step.target).max(axis=(0, 1, 2)) + 1 >= high + np.array(size) / 2 - 0.03).all()


def test_detail_that_the_coarser_grid_cannot_hold_is_blurred_and_not_aliased():
    space = grid_of((64, 8, 8), (0.9, 2.0, 2.0))
    stripes = np.broadcast_to(np.cos(np.pi * np.arange(64))[:, None, None], space.shape) + 10
    moved = to_voxel_size(space).forward(np.ascontiguousarray(stripes))
    assert np.abs(moved[4:-4] - 10).max() < 0.1


def test_a_signal_beside_a_bright_edge_does_not_fall_towards_zero():
    space = grid_of((30, 6, 6), (3.0, 2.0, 2.0))
    edge = np.where(np.arange(30) < 15, 10.0, 1000.0)
    moved = to_voxel_size(space).forward(np.ascontiguousarray(np.broadcast_to(edge[:, None, None], space.shape)))
    assert moved.min() >= 5.0


def test_maps_come_back_from_inside_the_mask_only():
    space = grid_of((10, 10, 10), (3.0, 3.0, 3.0))
    grid = working_grid(space)
    mask = np.zeros(grid.working.shape, bool)
    mask[:8] = True
    values = np.where(mask, 0.5, 1e6).astype(np.float32)
    back = grid.inverse(Volume(values, grid.working), mask)
    inside = grid.inverse_mask(mask)
    np.testing.assert_allclose(back.data[inside], 0.5, rtol=1e-6)
    assert set(np.unique(np.round(back.data, 4))) == {0.0, 0.5}


def test_tensors_outside_the_mask_do_not_bleed_in_and_the_inside_stays_constant():
    space = grid_of((10, 9, 8), (3.0, 3.0, 3.0))
    grid = working_grid(space)
    mask = np.random.default_rng(0).random(grid.working.shape) > 0.4
    one = tensors(1)[0]
    packed = np.where(mask[..., None], one, 1.0)
    back = grid.inverse_tensor(Volume(packed, grid.working), mask)
    inside = grid.inverse_mask(mask)
    assert inside.any()
    np.testing.assert_allclose(back.data[inside], np.broadcast_to(one, back.data[inside].shape), rtol=1e-6)
    assert not back.data[~inside].any()


def test_a_tensor_between_two_is_their_log_euclidean_mean():
    """Halfway between two half-spaces, weights are equal by symmetry."""
    space = grid_of((5, 5, 9), (2.0, 2.0, 3.0))
    grid = working_grid(space)
    first, second = tensors(2)
    half = grid.working.shape[2] // 2
    packed = np.empty((*grid.working.shape, 6))
    packed[:, :, :half], packed[:, :, half:] = first, second
    back = grid.inverse_tensor(Volume(packed, grid.working), np.ones(grid.working.shape, bool))
    expected = exp((log(torch.from_numpy(first)) + log(torch.from_numpy(second))) / 2).numpy()
    np.testing.assert_allclose(back.data[2, 2, 4], expected, rtol=1e-5)


def test_tensors_that_come_back_are_positive_definite_even_between_very_different_ones():
    space = grid_of((9, 9, 9), (3.0, 3.0, 3.0))
    grid = working_grid(space)
    packed = tensors(int(np.prod(grid.working.shape))).reshape(*grid.working.shape, 6)
    back = grid.inverse_tensor(Volume(packed, grid.working), np.ones(grid.working.shape, bool)).data
    matrices = back[..., [0, 3, 4, 3, 1, 5, 4, 5, 2]].reshape(*back.shape[:3], 3, 3)
    assert np.linalg.eigvalsh(matrices).min() > 0


def test_a_voxel_that_no_masked_tensor_reaches_takes_the_nearest_one():
    space = grid_of((12, 6, 6), (3.0, 2.0, 2.0))
    grid = working_grid(space)
    mask = np.zeros(grid.working.shape, bool)
    mask[:6] = True
    one = tensors(1)[0]
    packed = np.where(mask[..., None], one, 0.0)
    within = np.zeros(space.shape, bool)
    within[:6] = True
    back = grid.inverse_tensor(Volume(packed, grid.working), mask, within=within).data
    np.testing.assert_allclose(back[within], np.broadcast_to(one, back[within].shape), rtol=1e-6)
    assert not back[~within].any()


def test_a_mask_comes_back_to_within_a_voxel_of_its_surface():
    space = grid_of((30, 30, 12), (1.7, 1.7, 5.0))
    centre = positions(space).mean(axis=(0, 1, 2))
    ball = np.linalg.norm(positions(space) - centre, axis=-1) < 20
    grid = working_grid(space)
    there = grid.forward_mask(ball)
    volume_ml = ball.sum() * np.prod(space.voxel_size), there.sum() * np.prod(grid.working.voxel_size)
    assert volume_ml[1] == pytest.approx(volume_ml[0], rel=0.03)
    back = grid.inverse_mask(there)
    assert 2 * (back & ball).sum() / (back.sum() + ball.sum()) > 0.97
