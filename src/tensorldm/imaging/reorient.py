"""Nearest-axis re-orientation: flips and permutation of the array, no interpolation; obliquity stays in the affine."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Shaped
from nibabel.orientations import apply_orientation, inv_ornt_aff, io_orientation
from numpy import ndarray

from tensorldm.dti.packing import rotate
from tensorldm.imaging.volume import MovedMask, Space
from tensorldm.shapes import MaskImage


@dataclass(frozen=True, eq=False)
class Reorientation:
    """From a grid to the same voxels in another order; exact both ways."""

    source: Space
    target: Space
    turn: Float[ndarray, "3 3"]
    """A signed permutation: takes a vector in the source's image axes to the target's."""

    def forward(self, data: Float[ndarray, "x y z *n"]) -> Float[ndarray, "u v w *n"]:
        """Images in the target's order."""
        return _reordered(data, self.turn)

    def inverse(self, data: Float[ndarray, "u v w *n"], mask: MovedMask) -> Float[ndarray, "x y z *n"]:
        """Images in the source's order; nothing is interpolated, so the mask is not needed."""
        del mask
        return _reordered(data, self.turn.T)

    def forward_mask(self, mask: MaskImage) -> MovedMask:
        """A mask in the target's order."""
        return _reordered(mask, self.turn)

    def inverse_mask(self, mask: MovedMask) -> MaskImage:
        """A mask in the source's order."""
        return _reordered(mask, self.turn.T)

    def inverse_tensor(
        self, packed: Float[ndarray, "u v w 6"], mask: MovedMask, *, within: MaskImage
    ) -> Float[ndarray, "x y z 6"]:
        """Tensors in the source's order and image axes: a mirrored axis changes two off-diagonals' sign."""
        del mask, within
        voxels = torch.from_numpy(_reordered(packed, self.turn.T))
        return np.asarray(rotate(voxels, torch.from_numpy(self.turn.T.copy()).to(voxels.dtype)).numpy())


def to_ras(space: Space) -> Reorientation:
    """The flips and permutation after which the voxel axes point most nearly to the right, front and top."""
    orientation = io_orientation(space.affine)
    turn = np.zeros((3, 3))
    for axis, (to, sign) in enumerate(orientation):
        turn[int(to), axis] = sign
    shape = tuple(int(n) for n in np.abs(turn) @ np.array(space.shape))
    return Reorientation(space, space.moved(shape, inv_ornt_aff(orientation, space.shape)), turn)


def _reordered(data: Shaped[ndarray, "x y z *n"], turn: Float[ndarray, "3 3"]) -> Shaped[ndarray, "u v w *n"]:
    to = np.abs(turn).argmax(axis=0)
    orientation = np.column_stack([to, turn[to, np.arange(3)]])
    return np.ascontiguousarray(apply_orientation(data, orientation))
