"""Pad and crop: the same voxels in another box, exact where the two boxes overlap."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from tensorldm.imaging.volume import MovedMask, Space
from tensorldm.shapes import MaskImage


@dataclass(frozen=True, eq=False)
class Box:
    """From a grid to a smaller or larger window on it; what lies outside is zero."""

    source: Space
    target: Space
    start: tuple[int, int, int]
    """Index in the source of the target's first voxel; negative where it is padded."""

    @property
    def turn(self) -> Float[ndarray, "3 3"]:
        """The axes stay."""
        return np.eye(3)

    def forward(self, data: Float[ndarray, "x y z *n"]) -> Float[ndarray, "u v w *n"]:
        """Images in the target's box."""
        return _windowed(data, self.start, shape=self.target.shape)

    def inverse(self, data: Float[ndarray, "u v w *n"], mask: MovedMask) -> Float[ndarray, "x y z *n"]:
        """Images in the source's box, zero where they had been cropped."""
        del mask
        return _windowed(data, self._back, shape=self.source.shape)

    def forward_mask(self, mask: MaskImage) -> MovedMask:
        """A mask in the target's box."""
        return _windowed(mask, self.start, shape=self.target.shape)

    def inverse_mask(self, mask: MovedMask) -> MaskImage:
        """A mask in the source's box."""
        return _windowed(mask, self._back, shape=self.source.shape)

    def inverse_tensor(
        self, packed: Float[ndarray, "u v w 6"], mask: MovedMask, *, within: MaskImage
    ) -> Float[ndarray, "x y z 6"]:
        """Tensors in the source's box, zero where they had been cropped."""
        del mask, within
        return _windowed(packed, self._back, shape=self.source.shape)

    @property
    def _back(self) -> tuple[int, int, int]:
        x, y, z = self.start
        return -x, -y, -z


def to_shape(space: Space, shape: Sequence[int]) -> Box:
    """Pad or crop each side to a length, as evenly as can be on both ends."""
    x, y, z = ((old - new) // 2 for old, new in zip(space.shape, shape, strict=True))
    return _box(space, (x, y, z), shape=shape)


def to_multiple(space: Space, multiple: int) -> Box:
    """Pad each side to the next multiple, as networks with several levels want it."""
    return to_shape(space, [-(-n // multiple) * multiple for n in space.shape])


def around(space: Space, mask: MaskImage, *, margin: int) -> Box:
    """Crop to a mask's bounding box and a margin of voxels, within the grid; the whole grid for an empty mask."""
    inside = np.argwhere(mask) if mask.any() else np.array([[0, 0, 0], np.array(space.shape) - 1])
    first = np.maximum(inside.min(axis=0) - margin, 0)
    last = np.minimum(inside.max(axis=0) + margin + 1, space.shape)
    x, y, z = (int(n) for n in first)
    return _box(space, (x, y, z), shape=[int(n) for n in last - first])


def _box(space: Space, start: tuple[int, int, int], *, shape: Sequence[int]) -> Box:
    to_source = np.eye(4)
    to_source[:3, 3] = start
    return Box(space, space.moved(shape, to_source), start)


def _windowed(
    data: Shaped[ndarray, "x y z *n"], start: Sequence[int], *, shape: Sequence[int]
) -> Shaped[ndarray, "u v w *n"]:
    result = np.zeros((*shape, *data.shape[3:]), dtype=data.dtype)
    here, there = [], []
    for first, new, old in zip(start, shape, data.shape[:3], strict=True):
        low, high = max(first, 0), min(first + new, old)
        here.append(slice(low, max(high, low)))
        there.append(slice(low - first, max(high, low) - first))
    result[tuple(there)] = data[tuple(here)]
    return result
