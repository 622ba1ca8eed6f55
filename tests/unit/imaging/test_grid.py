import numpy as np
import torch

from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import angle_degrees, principal_direction
from tensorldm.dti.signal import predict_signal
from tensorldm.imaging.frames import directions_to_frame, tensor_to_frame
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.grid import Grid, working_grid
from tensorldm.imaging.volume import Volume


def series_of_one_fibre(space):
    """A fibre along (1, 2, 3) of the world, measured in twelve directions."""
    world = np.array([1.0, 2.0, 3.0]) / np.sqrt(14)
    fibre = directions_to_frame(world, space, source="scanner", target="image")
    matrix = 3e-4 * np.eye(3) + 1.4e-3 * np.outer(fibre, fibre)
    packed = torch.from_numpy(matrix[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
    directions = np.random.default_rng(0).normal(size=(13, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    gradients = GradientTable(np.array([0.0] + [1000.0] * 12), directions)
    table = torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions)
    signal = predict_signal(packed.expand(*space.shape, 6), torch.full(space.shape, 500.0, dtype=torch.float64), *table)
    return world, gradients, Volume(signal.numpy(), space)


def fitted(volume, gradients):
    table = torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions)
    return fit_ols(torch.from_numpy(volume.data), *table)[0]


def test_a_fibre_keeps_its_direction_in_the_world_there_and_back(oblique):
    for mirrored in (True, False):
        native = oblique((9, 8, 7), voxel_size=(1.6, 2.0, 4.0), mirrored=mirrored)
        world, gradients, volume = series_of_one_fibre(native)
        grid = working_grid(native).padded(8)
        moved = grid.forward(volume)
        inside = grid.forward_mask(np.ones(native.shape, bool))
        packed = np.zeros((*grid.working.shape, 6))
        packed[inside] = fitted(moved, grid.forward_gradients(gradients)).numpy()[inside]
        in_world = tensor_to_frame(packed, grid.working, target="scanner")[inside]
        found = principal_direction(torch.from_numpy(in_world))
        assert angle_degrees(found, torch.from_numpy(world).expand_as(found)).max() < 1e-3
        back = grid.inverse_tensor(Volume(packed, grid.working), inside)
        np.testing.assert_allclose(back.data, fitted(volume, gradients).numpy(), atol=1e-9)
        assert back.space is native


def test_a_grid_that_needs_nothing_gives_the_very_same_numbers(oblique):
    native = oblique((6, 5, 4), mirrored=False, degrees=(3.0, 2.0, 1.0))
    grid = working_grid(native)
    data = np.random.default_rng(0).random((6, 5, 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(grid.forward(Volume(data, native)).data, data)
    tensors = np.random.default_rng(0).normal(size=(6, 5, 4, 6)).astype(np.float32)
    back = grid.inverse_tensor(Volume(tensors, grid.working), np.ones(native.shape, bool))
    np.testing.assert_array_equal(back.data, tensors)  # not through a logarithm: negative eigenvalues survive
    assert grid.working.same_grid(native)


def test_cropping_to_a_mask_and_padding_come_back_exactly(oblique):
    native = oblique((12, 11, 10))
    mask = np.zeros(native.shape, bool)
    mask[3:9, 2:8, 4:7] = True
    grid = working_grid(native)
    grid = grid.cropped(grid.forward_mask(mask), margin=1).padded(4)
    assert all(side % 4 == 0 for side in grid.working.shape)
    assert np.prod(grid.working.shape) < np.prod(native.shape)
    tensors = np.random.default_rng(0).normal(size=(*native.shape, 6))
    turned = Grid(native, grid.steps).forward(Volume(tensors, native)).data
    # Components move as images do; that their axes turn too is what inverse_tensor must undo.
    from tensorldm.dti.packing import rotate

    packed = rotate(torch.from_numpy(turned), torch.from_numpy(grid.turn)).numpy()
    back = grid.inverse_tensor(Volume(packed, grid.working), grid.forward_mask(mask))
    np.testing.assert_allclose(back.data, np.where(mask[..., None], tensors, 0), atol=1e-12)


def test_a_shape_asked_for_is_given(oblique):
    assert working_grid(oblique((12, 11, 10))).boxed((16, 8, 10)).working.shape == (16, 8, 10)
