"""From the voxels of a head to the average head's coordinates, in which all structures are described.

The average head lives in RAS mm around the anterior commissure. A head is its image under a scaling and a smooth
random displacement; fibres follow by the inverse Jacobian, so that they stay tangent to their bundles.
"""

import math
from dataclasses import dataclass
from typing import Final

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.cohort.procedural.distance import Points
from tensorldm.cohort.procedural.noise import PlaneWaves, draw_waves
from tensorldm.cohort.procedural.parameters import HeadShape

AVERAGE_WIDTH_TO_LENGTH: Final = 137 / 174
MIDDLE_MM: Final = (0.0, -17.0, 4.0)
"""The middle of the average brain's box; it lies in the middle of the grid."""
DEFORMATION_WAVELENGTHS_MM: Final = (140.0, 70.0)


@dataclass(frozen=True)
class HeadFrame:
    """The map q(p) from a head's mm (origin at the grid's middle) to the average head's mm."""

    scale: Float[Tensor, " 3"]
    waves: tuple[tuple[PlaneWaves, ...], ...]
    """Per axis, one field per wavelength."""
    amplitude: float

    def to_average(self, points: Points) -> Points:
        """Where each point of the head lies in the average head."""
        displacement = torch.stack([sum_fields(fields, points) for fields in self.waves], dim=-1)
        return points / self.scale + points.new_tensor(MIDDLE_MM) + self.amplitude * displacement

    def directions_to_head(self, points: Points, directions: Float[Tensor, "n m 3"]) -> Float[Tensor, "n m 3"]:
        """Unit directions in the head from directions in the average head at the same places: (dq/dp)⁻¹ v."""
        slopes = [torch.stack([field.gradient(points) for field in fields]).sum(dim=0) for fields in self.waves]
        jacobian = torch.diag(1 / self.scale) + self.amplitude * torch.stack(slopes, dim=-2)
        moved = torch.linalg.solve(jacobian, rearrange(directions, "n m i -> n i m"))
        return torch.nn.functional.normalize(rearrange(moved, "n i m -> n m i"), dim=-1)


def sum_fields(fields: tuple[PlaneWaves, ...], points: Points) -> Float[Tensor, " n"]:
    """Several wavelengths together, each of unit variance."""
    total = torch.zeros_like(points[:, 0])
    for field in fields:
        total = total + field(points)
    return total


def draw_frame(shape: HeadShape, generator: torch.Generator, *, device: torch.device | str = "cpu") -> HeadFrame:
    """The frame of one head."""
    stretch = math.sqrt(shape.width_to_length / AVERAGE_WIDTH_TO_LENGTH)
    waves = tuple(
        tuple(draw_waves(generator, wavelength, count=8, device=device) for wavelength in DEFORMATION_WAVELENGTHS_MM)
        for _ in range(3)
    )
    scale = shape.size * torch.tensor([stretch, 1 / stretch, shape.height], device=device)
    return HeadFrame(scale=scale, waves=waves, amplitude=shape.deformation)


def grid_points(
    shape: tuple[int, int, int], voxel_size: tuple[float, float, float], *, device: torch.device | str = "cpu"
) -> Float[Tensor, "x y z 3"]:
    """Voxel centres in mm around the grid's middle."""
    axes = [
        (torch.arange(count, device=device, dtype=torch.float32) - (count - 1) / 2) * side
        for count, side in zip(shape, voxel_size, strict=True)
    ]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
