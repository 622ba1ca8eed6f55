"""The way from the working grid to the one that is written."""

import numpy as np
import torch

from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.volume import Space, Volume
from tensorldm.reconstruct.output_grid import WayOut


def test_every_voxel_that_has_a_tensor_has_every_map():
    """A voxel that sticks out of the mask is far from the 2 mm mask; a cone of 0 there would mean certainty."""
    space = Space((40, 40, 40), np.diag([1.0, 1.0, 1.0, 1.0]))
    mask = np.zeros(space.shape, bool)
    mask[10:30, 10:30, 10:30] = True
    mask[30:33, 20, 20] = True
    grid = working_grid(space)
    inside = grid.forward_mask(mask)
    b0 = GradientTable(np.zeros(1), np.zeros((1, 3)))
    way = WayOut(grid, inside, mask, Volume(np.ones((*space.shape, 1), np.float32), space), b0)
    count = int(inside.sum())
    tensor = way.tensor(torch.tensor([1e-3, 1e-3, 1e-3, 0, 0, 0], dtype=torch.float64).expand(count, 6))
    cone = way.map(torch.full((count,), 25.0, dtype=torch.float64))
    np.testing.assert_allclose(tensor[mask][:, 0], 1e-3, rtol=1e-5)
    np.testing.assert_allclose(cone[mask], 25, rtol=1e-5)
    assert not cone[~mask].any()
