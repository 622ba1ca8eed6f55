"""Variation within tissues: a field of a few mm plus a voxel-sized part, so that maps look measured, not painted."""

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float
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


def draw_texture(points: Points, generator: torch.Generator, *, level: float) -> Texture:
    """Every field of a head, each with its own strength relative to ``level``."""

    def field(strength: float) -> Float[Tensor, " n"]:
        smooth = draw_waves(generator, PATCH_MM, count=24, device=points.device)(points)
        grain = torch.randn(len(points), generator=generator).to(points.device)
        return (strength * level * (0.8 * smooth + 0.6 * grain)).exp()

    return Texture(
        density=field(2.0), axial=field(0.6), radial=field(1.2), grey=field(0.8), isotropic=field(3.0), s0=field(0.5)
    )
