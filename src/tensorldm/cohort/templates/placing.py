"""From a template's own grid to an anatomy's: RAS, isotropic, the brain in the middle.

Axes follow the nearest permutation and flips; obliquity is left as the head's pose. Tensors are interpolated in the
log domain, other maps linearly, both with weights normalised over the mask. Fibre directions have no sign and come
several to a voxel: each is averaged, as a dyad, with the one most nearly parallel to it in every neighbour.
"""

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from tensorldm.cohort.templates.request import GridChoice
from tensorldm.components import COLUMNS, ROWS
from tensorldm.dti.maps import principal_direction
from tensorldm.dti.packing import rotate
from tensorldm.imaging.reorient import Reorientation, to_ras
from tensorldm.imaging.resample import Resampling
from tensorldm.imaging.volume import MovedMask, Space
from tensorldm.shapes import MaskImage

SAME_FIBRE_COSINE: Final = 0.7
"""Directions within 45° of each other in neighbouring voxels count as one fibre population."""
SAME_SIZE_SHARE: Final = 0.02


@dataclass(frozen=True, eq=False)
class Placement:
    """A template's grid, its brain, and where its voxels come to lie."""

    reorientation: Reorientation
    resampling: Resampling
    """From the anatomy's grid to the re-oriented template; used backwards."""
    native_mask: MaskImage
    """On the re-oriented template."""
    mask: MovedMask
    """On the anatomy's grid."""

    def tensors(self, packed: Float[ndarray, "x y z 6"]) -> Float[Tensor, "v 6"]:
        """Tensors in image axes, as a list of the mask's voxels."""
        turn = torch.from_numpy(self.reorientation.turn.copy()).float()
        turned = rotate(torch.from_numpy(self.reorientation.forward(packed)), turn).numpy()
        placed = self.resampling.inverse_tensor(turned, self.native_mask, within=self.mask)
        return torch.from_numpy(placed[self.mask])

    def scalars(self, image: Float[ndarray, "x y z"]) -> Float[Tensor, " v"]:
        """A map as a list of the mask's voxels."""
        placed = self.resampling.inverse(self.reorientation.forward(image), self.native_mask)
        return torch.from_numpy(placed[self.mask])

    def fibres(
        self, directions: Float[ndarray, "x y z m 3"], weights: Float[ndarray, "x y z m"]
    ) -> tuple[Float[Tensor, "v m 3"], Float[Tensor, "v m"]]:
        """Unit directions in image axes and their weights, as a list of the mask's voxels."""
        shape, count = self.reorientation.target.shape, weights.shape[-1]
        flat = self.reorientation.forward(directions.reshape(*directions.shape[:3], -1))
        turned = flat.reshape(*shape, count, 3) @ self.reorientation.turn.T.astype(np.float32)
        inside = self.native_mask[..., None]
        return _average_fibres(
            torch.from_numpy(np.ascontiguousarray(turned)),
            torch.from_numpy(np.where(inside, self.reorientation.forward(weights), 0).astype(np.float32)),
            positions=self._positions(),
        )

    def _positions(self) -> Float[Tensor, "v 3"]:
        """The mask's voxels in indices of the re-oriented template."""
        to_template = np.linalg.inv(self.resampling.target.affine) @ self.resampling.source.affine
        indices = np.argwhere(self.mask)
        return torch.from_numpy(indices @ to_template[:3, :3].T + to_template[:3, 3]).float()


def place(space: Space, mask: MaskImage, *, grid: GridChoice) -> Placement:
    """Put the middle of a mask's box into the middle of the wanted grid."""
    reorientation = to_ras(space)
    turned = reorientation.forward_mask(mask)
    ras = reorientation.target
    inside = np.argwhere(turned)
    middle = (inside.min(axis=0) + inside.max(axis=0)) / 2
    ratio = grid.voxel_mm / np.array(ras.voxel_size)
    to_ras_index = np.diag([*ratio, 1.0])
    to_ras_index[:3, 3] = middle - ratio * (np.array(grid.shape) - 1) / 2
    if np.abs(ratio - 1).max() <= SAME_SIZE_SHARE:
        # Voxels of the right size stay as they are: the brain's middle moves by half a voxel at most.
        to_ras_index = np.eye(4)
        to_ras_index[:3, 3] = np.round(middle - (np.array(grid.shape) - 1) / 2)
    resampling = Resampling(ras.moved(grid.shape, to_ras_index), ras)
    # Interpolation repeats the last slice beyond the field of view; a brain that is cut there ends there.
    mask = resampling.inverse_mask(turned) & _covered(to_ras_index, ras.shape, shape=grid.shape)
    return Placement(reorientation, resampling, turned, mask)


def _covered(
    to_source: Float[ndarray, "4 4"], source: tuple[int, int, int], *, shape: tuple[int, int, int]
) -> MovedMask:
    """Voxels of a grid whose middles lie within a source's field of view."""
    inside = []
    for axis in range(3):
        position = to_source[axis, axis] * np.arange(shape[axis]) + to_source[axis, 3]
        inside.append((position >= -0.5) & (position <= source[axis] - 0.5))
    x, y, z = inside
    return np.asarray(x[:, None, None] & y[None, :, None] & z[None, None, :])


def _average_fibres(
    directions: Float[Tensor, "x y z m 3"], weights: Float[Tensor, "x y z m"], *, positions: Float[Tensor, "v 3"]
) -> tuple[Float[Tensor, "v m 3"], Float[Tensor, "v m"]]:
    """Trilinear means of matching fibres; the nearest voxel says which fibres there are."""
    first, last = torch.zeros(3, dtype=torch.long), torch.tensor(weights.shape[:3]) - 1
    nearest = positions.round().long().clamp(min=first, max=last)
    wanted, present = _at(directions, nearest), _at(weights, nearest) > 0
    found, amounts = torch.zeros_like(wanted), torch.zeros(wanted.shape[:2])
    rows = present.any(dim=-1)
    wanted, base = wanted[rows], positions[rows].floor().long()
    part = positions[rows] - base
    dyads, total = torch.zeros(*wanted.shape[:2], 6), torch.zeros(wanted.shape[:2])
    for corner in product((0, 1), repeat=3):
        offset = torch.tensor(corner)
        share = torch.where(offset.bool(), part, 1 - part).prod(dim=-1)
        if not share.any():
            continue
        index = (base + offset).clamp(min=first, max=last)
        fibre, amount = _matching(wanted, _at(directions, index), weights=_at(weights, index))
        weight = share[:, None] * amount
        dyads += weight[..., None] * fibre[..., list(ROWS)] * fibre[..., list(COLUMNS)]
        total += weight
    total = total * present[rows]
    mean = torch.zeros_like(wanted)
    mean[total > 0] = principal_direction(dyads[total > 0])
    found[rows], amounts[rows] = mean, total
    return found, amounts


def _matching(
    wanted: Float[Tensor, "v m 3"], there: Float[Tensor, "v m 3"], *, weights: Float[Tensor, "v m"]
) -> tuple[Float[Tensor, "v m 3"], Float[Tensor, "v m"]]:
    """For each wanted fibre the one most nearly parallel to it, and its weight: 0 where none is near enough."""
    cosine = torch.einsum("vmi,vni->vmn", wanted, there).abs() * (weights > 0)[:, None]
    closeness, twin = cosine.max(dim=-1)
    fibre = there.gather(1, twin[..., None].expand(-1, -1, 3))
    return fibre, weights.gather(1, twin) * (closeness > SAME_FIBRE_COSINE)


def _at(volume: Float[Tensor, "x y z *n"], index: Int[Tensor, "v 3"]) -> Float[Tensor, "v *n"]:
    x, y, z = index.unbind(dim=-1)
    return volume[x, y, z]
