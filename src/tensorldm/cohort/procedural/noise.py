"""Smooth random fields as sums of plane waves: defined everywhere, so the same head can be drawn on any grid."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class PlaneWaves:
    """A stationary random field of unit variance: sqrt(2/n) Σ cos(k·p + φ)."""

    wave_vectors: Float[Tensor, "n 3"]
    """Radians per mm."""
    phases: Float[Tensor, " n"]

    def __call__(self, points: Float[Tensor, "*p 3"]) -> Float[Tensor, "*p"]:
        """The field at these points (mm)."""
        angles = points @ self.wave_vectors.T + self.phases
        return math.sqrt(2 / len(self.phases)) * angles.cos().sum(dim=-1)

    def gradient(self, points: Float[Tensor, "*p 3"]) -> Float[Tensor, "*p 3"]:
        """The field's exact gradient per mm."""
        angles = points @ self.wave_vectors.T + self.phases
        return -math.sqrt(2 / len(self.phases)) * angles.sin() @ self.wave_vectors


def draw_waves(
    generator: torch.Generator, wavelength_mm: float, *, count: int = 24, device: torch.device | str = "cpu"
) -> PlaneWaves:
    """A field whose wavelengths lie within ±25 % of the given one.

    Drawn on the generator's own device (the CPU) and moved, so that a head is the same on every device.
    """
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=-1)
    stretch = 0.75 + 0.5 * torch.rand(count, 1, generator=generator)
    phases = 2 * math.pi * torch.rand(count, generator=generator)
    return PlaneWaves(
        wave_vectors=(directions * (2 * math.pi / wavelength_mm) / stretch).to(device), phases=phases.to(device)
    )
