"""Variation within tissues: a field of a few mm plus a voxel-sized part, so that maps look measured, not painted."""

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.cohort.procedural.distance import Points
from tensorldm.cohort.procedural.noise import draw_waves

PATCH_MM: Final = 16.0


@dataclass(frozen=True)
class Texture:
    """Relative variation around 1, per voxel."""

    density: Float[Tensor, " n"]
    axial: Float[Tensor, " n"]
    radial: Float[Tensor, " n"]
    grey: Float[Tensor, " n"]
    isotropic: Float[Tensor, " n"]
    s0: Float[Tensor, " n"]


def draw_texture(points: Points, generator: torch.Generator, *, level: float, mask: Bool[Tensor, "x y z"]) -> Texture:
    """Every field of a head, each with its own strength relative to ``level``.

    ``points`` are the mask's voxels. Grain is drawn for the whole grid, so that a voxel more or less at the rim, as
    rounding differs between devices, leaves all others as they are.
    """

    def field(strength: float) -> Float[Tensor, " n"]:
        smooth = draw_waves(generator, PATCH_MM, count=24, device=points.device)(points)
        grain = torch.randn(mask.shape, generator=generator).to(points.device)[mask]
        return (strength * level * (0.8 * smooth + 0.6 * grain)).exp()

    return Texture(
        density=field(2.0), axial=field(0.6), radial=field(1.2), grey=field(0.8), isotropic=field(3.0), s0=field(0.5)
    )
