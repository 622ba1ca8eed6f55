"""Bundles and brains whose cores are known."""

import numpy as np
import pytest

from tensorldm.imaging.volume import Space
from tensorldm.tracts.engine import TensorField
from tensorldm.tracts.streamlines import Streamlines

RADIUS_MM = 30.0


def around(core, *, count=40, spread=3.0, seed=0):
    """Streamlines parallel to a curve, scattered evenly about it, so that the curve is their mean."""
    shifts = np.random.default_rng(seed).normal(0, spread, (count // 2, 3))
    return Streamlines.of([core + shift for shift in np.concatenate([shifts, -shifts])])


@pytest.fixture
def line():
    return np.linspace([-40.0, 10, 0], [40, 10, 20], 60)


@pytest.fixture
def arc():
    """A quarter of a circle of 40 mm."""
    angle = np.linspace(0, np.pi / 2, 80)
    return np.stack([40 * np.cos(angle), 40 * np.sin(angle), np.full_like(angle, 5.0)], axis=1)


@pytest.fixture
def bundle_around():
    return around


def affine_of(axes, size, *, shape):
    """World axes of the voxel axes in columns; the grid's middle is at 5, -3, 2 mm."""
    affine = np.eye(4)
    affine[:3, :3] = np.asarray(axes, dtype=float) * size
    affine[:3, 3] = np.array([5.0, -3, 2]) - affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    return affine


def curved_field(axes=None, *, size=2.0, side=44):
    """Fibres along half a circle of 30 mm about the grid's middle, in the plane of world x and y, 10 mm thick."""
    axes = np.eye(3) if axes is None else axes
    shape = (side, side, side) if not np.allclose(np.abs(axes), np.eye(3)) else (side, side, 14)
    space = Space(shape, affine_of(axes, size, shape=shape))
    voxels = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1)
    x, y, z = np.moveaxis(voxels @ space.affine[:3, :3].T + space.affine[:3, 3] - [5.0, -3, 2], -1, 0)
    radius = np.hypot(x, y)
    mask = (np.hypot(radius - RADIUS_MM, z) <= 5) & (y > 0)
    tangent = np.stack([-y, x, np.zeros_like(x)], axis=-1) / np.maximum(radius, 1e-6)[..., None]
    local = tangent @ space.axes  # the world's directions in image axes
    i, j, k = np.moveaxis(local, -1, 0)
    outer = np.stack([i * i, j * j, k * k, i * j, i * k, j * k], axis=-1)
    packed = 0.3e-3 * np.array([1.0, 1, 1, 0, 0, 0]) + 1.4e-3 * outer
    return TensorField(np.where(mask[..., None], packed, 0).astype(np.float32), mask, space)


@pytest.fixture
def curved():
    return curved_field


@pytest.fixture
def true_arc():
    """The circle that ``curved_field`` runs along."""
    angle = np.linspace(0.05, np.pi - 0.05, 200)
    return np.stack([30 * np.cos(angle), 30 * np.sin(angle), 0 * angle], axis=1) + [5.0, -3, 2]
