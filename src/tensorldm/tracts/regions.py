"""Masks with their place in the world: whether a point lies in one, and what lies near one."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy import ndimage

from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage


@dataclass(frozen=True, eq=False)
class Region:
    """A mask with its place in the world."""

    mask: MaskImage
    space: Space


def look_up(region: Region, points: Float[ndarray, "points 3"]) -> Bool[ndarray, " points"]:
    """Whether each point (world mm) lies in a voxel of the mask."""
    voxels = voxels_of(region.space, points)
    shape = np.array(region.mask.shape)
    on_grid = ((voxels >= 0) & (voxels < shape)).all(axis=1)
    found = np.zeros(len(points), dtype=bool)
    found[on_grid] = region.mask[tuple(voxels[on_grid].T)]
    return found


def grow(region: Region, margin_mm: float) -> Region:
    """The region and all that is no farther from it than the margin, on its own grid."""
    if margin_mm == 0 or not region.mask.any():
        return region
    reach = np.ceil(margin_mm / np.array(region.space.voxel_size)).astype(int)
    places = np.argwhere(region.mask)
    low, high = np.maximum(places.min(axis=0) - reach, 0), places.max(axis=0) + reach + 1
    box = tuple(slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
    grown = np.zeros_like(region.mask)  # only the box around the region is searched: it is a small part of a head
    distance = ndimage.distance_transform_edt(~region.mask[box], sampling=region.space.voxel_size)
    grown[box] = np.asarray(distance) <= margin_mm
    return Region(grown, region.space)


def voxels_of(space: Space, points: Float[ndarray, "points 3"]) -> Int[ndarray, "points 3"]:
    """The nearest voxel of each point (world mm), on the grid or off it."""
    to_voxels = np.linalg.inv(space.affine)
    return np.asarray(np.rint(points @ to_voxels[:3, :3].T + to_voxels[:3, 3]).astype(np.int64))
