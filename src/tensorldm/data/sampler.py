"""Which subject and which place come next: pure functions of a seed and a position, so that resuming is exact.

A position counts items from the start of training and never ends. Each pass over the subjects is its own
shuffle; nothing is remembered between calls, so the batch size and the number of processes change nothing.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from tensorldm.rng import numpy_generator

Box = tuple[int, int, int]
"""Three sides, or a place, in voxels."""


def subject_at(position: int, count: int, *, seed: int) -> int:
    """Index of the subject at a position: every subject once per pass, in an order of that pass alone."""
    assert position >= 0, "positions count from 0"
    assert count > 0, "a split has subjects"
    turn, place = divmod(position, count)
    return int(_order(seed, turn, count)[place])


@lru_cache(maxsize=4)
def _order(seed: int, turn: int, count: int) -> ndarray:
    order = numpy_generator(seed, "subjects", turn).permutation(count)
    order.flags.writeable = False
    return order


def brain_corner(mask: Bool[ndarray, "x y z"], size: Box, *, seed: int, position: int) -> Box:
    """Lowest corner of a patch whose centre is drawn evenly from the mask."""
    x, y, z = mask.shape
    return corner_about(brain_voxels(mask), (x, y, z), size=size, seed=seed, position=position)


def brain_voxels(mask: Bool[ndarray, "x y z"]) -> Int[ndarray, " _"]:
    """The mask's voxels, counted through the volume."""
    return np.flatnonzero(mask)


def corner_about(voxels: Int[ndarray, " n"], shape: Box, *, size: Box, seed: int, position: int) -> Box:
    """Lowest corner of a patch about one of ``voxels``, drawn evenly, moved inside the volume where it fits.

    Drawing the centre, not the corner, weights patches by brain: half of a head's box is background.
    A volume smaller than the patch gives a negative corner, so that the volume lies in the patch's middle.
    """
    drawn = numpy_generator(seed, "patch", position).integers(max(voxels.size, 1))
    # A virtual slab may miss the brain; its patch is then about the volume's middle, and its empty mask counts nothing.
    centre = np.unravel_index(voxels[drawn], shape) if voxels.size else [side // 2 for side in shape]
    x, y, z = (
        _fit(int(middle) - length // 2, length, extent)
        for middle, length, extent in zip(centre, size, shape, strict=True)
    )
    return x, y, z


def _fit(corner: int, length: int, extent: int) -> int:
    if extent < length:
        return -((length - extent) // 2)
    return min(max(corner, 0), extent - length)
