"""Which component, where in the head, and how noisy: what the U-Net is told beside the latents.

The component embedding is e_d(p)[k] = Σ_axis v[d, k, axis] · PE_axis(p)[k] with p in mm from the mask's centre, so
crop, padding and patching do not change it [choice: component-embedding].
Axes: b batch, d component (6), k embedding channel, a axis (3), x y z space, t diffusion step.
"""

from math import log, pi

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from tensorldm.components import NUM_COMPONENTS
from tensorldm.shapes import Latents

SHORTEST_WAVE_MM = 32.0  # [choice: component-embedding] four latent voxels at 2 mm and 4× compression
LONGEST_WAVE_MM = 512.0  # [choice: component-embedding] about three heads: its sine is monotonic inside one
SLOWEST_STEP_WAVE = 10_000.0

Coordinates = tuple[Float[Tensor, "b x"], Float[Tensor, "b y"], Float[Tensor, "b z"]]
"""Position of each latent along each axis, in mm from the mask's centre."""


def latent_coordinates(
    size: tuple[int, int, int], centre: Float[Tensor, "b 3"], *, voxel_size: Float[Tensor, "b 3"], compression: int
) -> Coordinates:
    """mm from ``centre`` (in voxels) to the middle of each latent of a grid of ``size`` latents."""
    x, y, z = (
        ((torch.arange(side, device=centre.device) + 0.5) * compression - 0.5 - centre[:, axis, None])
        * voxel_size[:, axis, None]
        for axis, side in enumerate(size)
    )
    return x, y, z


class ComponentEmbedding(nn.Module):
    """The learned vectors v and their volume e_d; the gate of the experts reads the vectors."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        assert channels % 2 == 0, "half the channels are sines, half cosines"
        self.vectors = nn.Parameter(torch.randn(NUM_COMPONENTS, channels, 3))
        waves = torch.linspace(log(SHORTEST_WAVE_MM), log(LONGEST_WAVE_MM), channels // 2).exp()
        self.register_buffer("radians_per_mm", 2 * pi / waves, persistent=False)
        self.radians_per_mm: Tensor

    def flat_vectors(self) -> Float[Tensor, "6 v"]:
        """One vector a component, of 3 × channels entries."""
        return rearrange(self.vectors, "d k a -> d (k a)")

    def forward(self, coordinates: Coordinates) -> Latents:
        """e_d at every latent."""
        x, y, z = (
            einsum(self.vectors[:, :, axis], self._waves(along), "d k, b n k -> b d k n")
            for axis, along in enumerate(coordinates)
        )
        return x[..., :, None, None] + y[..., None, :, None] + z[..., None, None, :]

    def _waves(self, along: Float[Tensor, "b n"]) -> Float[Tensor, "b n k"]:
        phase = along[..., None] * self.radians_per_mm
        return torch.cat([phase.sin(), phase.cos()], dim=-1)


class TimeEmbedding(nn.Module):
    """A vector for the diffusion step: sinusoids of t through two layers."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        assert channels % 2 == 0, "half the channels are sines, half cosines"
        rates = torch.linspace(0, -log(SLOWEST_STEP_WAVE), channels // 2).exp()
        self.register_buffer("rates", rates, persistent=False)
        self.rates: Tensor
        self.layers = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, channels), nn.SiLU())

    def forward(self, steps: Int[Tensor, " b"]) -> Float[Tensor, "b v"]:
        """One vector a member of the batch."""
        phase = steps[:, None].to(self.rates.dtype) * self.rates
        embedded: Tensor = self.layers(torch.cat([phase.sin(), phase.cos()], dim=-1))
        return embedded
