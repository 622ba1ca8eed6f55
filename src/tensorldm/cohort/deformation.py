"""Smooth, invertible maps between a new head and an old one: poses and exponentials of velocity fields.

A deformation is a pull-back: for every voxel of the new grid, where in the old head it looks. It is
``exp(v) ∘ A``, the pose A first (new to old), then the flow of the velocity field v on the old head.
Positions are mm from the centre of the respective grid. Axes: i j vector, c channel, x y z space.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import grid_sample

from tensorldm.cohort.axes import Shape, Size, centred

SQUARINGS = 6
"""The first step moves by 1/64 of the field: below a tenth of a voxel for every field that we draw."""


@dataclass(frozen=True)
class Deformation:
    """Where each voxel of the new grid looks in the old head, in mm from the old grid's centre."""

    positions: Float[Tensor, "3 x y z"]
    voxel_size: Size
    """Of the new grid."""

    def jacobian(self) -> Float[Tensor, "x y z 3 3"]:
        """∂(old position i)/∂(new position j), by central differences: small steps from the new head to the old."""
        steps = torch.gradient(self.positions, spacing=list(self.voxel_size), dim=(1, 2, 3))
        return torch.stack(steps).permute(2, 3, 4, 1, 0)


@lru_cache(maxsize=8)
def coordinates(shape: Shape, voxel_size: Size, *, device: torch.device) -> Float[Tensor, "3 x y z"]:
    """Position of every voxel. Kept for the next call, so never write into it."""
    axes = [centred(size, voxel).float().to(device) for size, voxel in zip(shape, voxel_size, strict=True)]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def sample(
    volumes: Float[Tensor, "c x y z"],
    positions: Float[Tensor, "3 x2 y2 z2"],
    *,
    voxel_size: Size,
    beyond: str = "zeros",
) -> Float[Tensor, "c x2 y2 z2"]:
    """Volumes interpolated linearly at positions; ``beyond`` the grid there are zeros or its border."""
    sizes = volumes.shape[1:]
    reach = [max(size - 1, 1) * voxel / 2 for size, voxel in zip(sizes, voxel_size, strict=True)]
    scaled = positions / positions.new_tensor(reach)[:, None, None, None]
    grid = scaled.flip(0).permute(1, 2, 3, 0)  # grid_sample counts the last axis first
    return grid_sample(volumes[None], grid[None], mode="bilinear", padding_mode=beyond, align_corners=True)[0]


def exponential(velocity: Float[Tensor, "3 x y z"], voxel_size: Size) -> Float[Tensor, "3 x y z"]:
    """Displacement in mm after flowing along a stationary velocity field for unit time, by scaling and squaring."""
    start = coordinates(_shape(velocity), voxel_size, device=velocity.device)
    displacement: Tensor = velocity / 2**SQUARINGS
    for _ in range(SQUARINGS):
        displacement = displacement + sample(displacement, start + displacement, voxel_size=voxel_size, beyond="border")
    return displacement


def pull_back(
    pose: Float[Tensor, "3 4"],
    velocity: Float[Tensor, "3 a b c"],
    *,
    velocity_voxel_size: Size,
    shape: Shape,
    voxel_size: Size,
) -> Deformation:
    """The deformation ``exp(v) ∘ A`` on a new grid."""
    displacement = exponential(velocity, velocity_voxel_size)
    moved = _posed(coordinates(shape, voxel_size, device=velocity.device), pose)
    return Deformation(_displaced(moved, displacement, velocity_voxel_size), voxel_size)


def _posed(positions: Float[Tensor, "3 x y z"], pose: Float[Tensor, "3 4"]) -> Float[Tensor, "3 x y z"]:
    pose = pose.to(positions)
    # Summed by hand: three products in full precision whatever the setting for matrix products is.
    return sum(pose[:, j, None, None, None] * positions[j] for j in range(3)) + pose[:, 3, None, None, None]


def _displaced(
    positions: Float[Tensor, "3 x y z"], displacement: Float[Tensor, "3 a b c"], voxel_size: Size
) -> Float[Tensor, "3 x y z"]:
    return positions + sample(displacement, positions, voxel_size=voxel_size, beyond="border")


def _shape(volumes: Float[Tensor, "c x y z"]) -> Shape:
    x, y, z = volumes.shape[1:]
    return x, y, z
