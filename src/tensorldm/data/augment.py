"""Augmentation that obeys physics: a head is moved, and the gradients that measured it move along.

A mirror or turn acts on space, on the directions (g' = P g) and on the tensors (D' = P D Pᵀ) together, so that the
Stejskal-Tanner equation [E1] holds afterwards as it did before; a mirror thus flips two off-diagonals. Turns by any
angle need interpolation: ln S and D with the same weights. The least-squares fit is linear in ln S, so this equals
resampling the (logarithmic) DWIs and fitting again, and E1 stays exact.
Axes: b batch, c DWI volume, d tensor component (6), x y z space.
"""

from dataclasses import dataclass, replace
from math import radians

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from scipy.spatial.transform import Rotation
from torch import Tensor
from torch.nn import functional as F

from tensorldm.batch import Batch
from tensorldm.dti.packing import rotate as rotate_packed
from tensorldm.shapes import Components, Features

SIGNAL_FLOOR = 1e-4
"""Share of the b=0 scale below which a signal counts as this much: far under any noise floor, and ln stays finite."""
PAPER_VOLUMES = 4
"""b0 x y z: the volumes whose order names the axes."""


@dataclass(frozen=True)
class Augmentation:
    """What may happen to a subject; nothing by default."""

    mirror_axes: tuple[int, ...] = ()
    """Axes mirrored with probability one half each; 0 is left-right, the one symmetry that heads have."""
    permute_axes: bool = False
    """Any of the six orders of the axes: for patches, not for whole heads."""
    largest_rotation_degrees: float = 0.0
    """Turn about a random axis by up to this angle, by interpolation."""


NO_AUGMENTATION = Augmentation()


def augment(batch: Batch, settings: Augmentation, *, draw: np.random.Generator) -> Batch:
    """A random move of the whole batch; the same generator state gives the same move."""
    axes = draw.permutation(3) if settings.permute_axes else np.arange(3)
    signs = [-1 if axis in settings.mirror_axes and draw.random() < 0.5 else 1 for axis in range(3)]
    if list(axes) != [0, 1, 2] or signs != [1, 1, 1]:
        batch = reaxis(batch, (int(axes[0]), int(axes[1]), int(axes[2])), signs=(signs[0], signs[1], signs[2]))
    if settings.largest_rotation_degrees > 0:
        about = draw.normal(size=3)
        angle = radians(settings.largest_rotation_degrees) * draw.uniform(-1, 1)
        turn = Rotation.from_rotvec(angle * about / np.linalg.norm(about)).as_matrix()
        batch = rotate(batch, torch.from_numpy(turn))
    return batch


def reaxis(batch: Batch, axes: tuple[int, int, int], *, signs: tuple[int, int, int]) -> Batch:
    """Mirrors and quarter turns, exact to the last bit: new axis a is old axis ``axes[a]``, reversed if its sign is -1.

    Of the paper's four volumes, those named x y z are put in the order of the new axes.
    """
    order = list(axes)
    flipped = [a - 3 for a in range(3) if signs[a] < 0]

    def move(volume: Tensor) -> Tensor:
        lead = list(range(volume.ndim - 3))
        moved = volume.permute(*lead, *(len(lead) + axis for axis in order))
        return (moved.flip(flipped) if flipped else moved).contiguous()

    matrix = torch.zeros(3, 3, dtype=batch.directions.dtype, device=batch.directions.device)
    for a in range(3):
        matrix[a, order[a]] = signs[a]
    volumes = [0, *(1 + axis for axis in order)] if batch.dwi.shape[1] == PAPER_VOLUMES else slice(None)
    return replace(
        batch,
        dwi=move(batch.dwi)[:, volumes],
        bvals=batch.bvals[:, volumes],
        directions=(batch.directions @ matrix.T)[:, volumes],
        components=_turned(move(batch.components), matrix),
        clean=_turned(move(batch.clean), matrix),
        mask=move(batch.mask),
        voxel_size=batch.voxel_size[:, order],
        centre=_moved(batch, order, signs=signs),
    )


def _moved(batch: Batch, order: list[int], *, signs: tuple[int, int, int]) -> Float[Tensor, "b 3"]:
    """The brain's middle on the new axes."""
    sides = batch.centre.new_tensor([batch.mask.shape[1 + axis] for axis in order])
    centre = batch.centre[:, order]
    return torch.where(batch.centre.new_tensor(signs) < 0, sides - 1 - centre, centre)


def rotate(batch: Batch, rotation: Float[Tensor, "3 3"]) -> Batch:
    """The heads turned about the middle of their grids; voxels outside the mask do not bleed in."""
    matrix = rotation.to(batch.directions)
    grid = _sampling_grid(batch, matrix)
    inside = rearrange(batch.mask.to(batch.dwi), "b x y z -> b 1 x y z")
    weight = F.grid_sample(inside, grid, align_corners=True)
    mask = rearrange(weight, "b 1 x y z -> b x y z") >= 0.5

    def sample(volumes: Features) -> Features:
        mean = F.grid_sample(volumes * inside, grid, align_corners=True) / weight.clamp_min(0.5)
        return mean * mask[:, None]

    signal = sample(batch.dwi.clamp_min(SIGNAL_FLOOR).log()).exp() * mask[:, None]
    components = _turned(sample(batch.components), matrix)
    same = batch.clean is batch.components
    return replace(
        batch,
        dwi=signal,
        directions=batch.directions @ matrix.T,
        components=components,
        clean=components if same else _turned(sample(batch.clean), matrix),
        mask=mask,
        centre=_turned_centre(batch, matrix),
    )


def _turned_centre(batch: Batch, rotation: Float[Tensor, "3 3"]) -> Float[Tensor, "b 3"]:
    """The brain's middle, turned with the head about the middle of the grid."""
    middle = batch.centre.new_tensor([(side - 1) / 2 for side in batch.mask.shape[1:]])
    away = (batch.centre - middle) * batch.voxel_size
    return middle + away @ rotation.T.to(away) / batch.voxel_size


def _turned(components: Components, matrix: Float[Tensor, "3 3"]) -> Components:
    packed = rearrange(components, "b d x y z -> b x y z d")
    return rearrange(rotate_packed(packed, matrix.to(packed)), "b x y z d -> b d x y z").contiguous()


def _sampling_grid(batch: Batch, rotation: Float[Tensor, "3 3"]) -> Float[Tensor, "b x y z 3"]:
    """Where each voxel of the turned head comes from, in ``grid_sample``'s coordinates (last axis first, -1..1)."""
    shape = batch.mask.shape[1:]
    extent = torch.tensor([max(n - 1, 1) / 2 for n in shape]).to(rotation)
    half = extent * batch.voxel_size.to(rotation)
    linear = rearrange(1 / half, "b i -> b i 1") * rotation.T * rearrange(half, "b j -> b 1 j")
    theta = F.pad(linear.flip(1, 2), (0, 1)).to(batch.dwi)
    return F.affine_grid(theta, [len(theta), 1, *shape], align_corners=True)
