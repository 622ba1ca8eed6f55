"""Which voxels a bundle visits, and how far two bundles visit the same."""

from typing import Final

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage
from tensorldm.tracts.regions import voxels_of
from tensorldm.tracts.streamlines import Streamlines

STEPS_PER_VOXEL: Final = 4
"""Streamlines are followed in steps of a quarter of a voxel, so that they skip no voxel but by a corner."""
LEAST_SHARE: Final = 0.01
"""A voxel belongs to a bundle that sends this share of its streamlines through it: one stray line is no bundle."""


def visits(streamlines: Streamlines, space: Space) -> Int[ndarray, "x y z"]:
    """How many streamlines go through each voxel; each counts once."""
    image = np.zeros(space.shape, dtype=np.int64)
    if not len(streamlines):
        return image
    points, owners = _followed(streamlines, min(space.voxel_size) / STEPS_PER_VOXEL)
    voxels = voxels_of(space, points)
    on_grid = ((voxels >= 0) & (voxels < space.shape)).all(axis=1)
    flat = np.ravel_multi_index(tuple(voxels[on_grid].T), space.shape)
    once = np.unique(np.stack([owners[on_grid], flat], axis=1), axis=0)
    np.add.at(image.reshape(-1), once[:, 1], 1)
    return image


def visited(streamlines: Streamlines, space: Space) -> MaskImage:
    """The voxels that belong to the bundle."""
    return np.asarray(visits(streamlines, space) >= max(1.0, LEAST_SHARE * len(streamlines)))


def dice(a: MaskImage, b: MaskImage) -> float:
    """Twice the common part over both parts; not-a-number where both are empty."""
    total = int(a.sum()) + int(b.sum())
    return 2 * int((a & b).sum()) / total if total else float("nan")


def _followed(streamlines: Streamlines, step_mm: float) -> tuple[Float[ndarray, "points 3"], Int[ndarray, " points"]]:
    """Points no farther apart than a step along every streamline, and whose they are."""
    points, owners = streamlines.points.astype(np.float64), streamlines.owners
    inner = owners[1:] == owners[:-1]
    starts, ends, whose = points[:-1][inner], points[1:][inner], owners[1:][inner]
    pieces = np.maximum(np.ceil(np.linalg.norm(ends - starts, axis=1) / step_mm), 1).astype(np.int64)
    segment = np.repeat(np.arange(len(pieces)), pieces)
    place = np.arange(len(segment)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    share = (place / pieces[segment])[:, None]
    between = starts[segment] * (1 - share) + ends[segment] * share
    return np.concatenate([between, points]), np.concatenate([whose[segment], owners])
