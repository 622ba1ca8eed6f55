"""Encoder of one group of tensor components: each component becomes latents of its own, by weights the group shares.

Axes: b batch, s component of the group (3), f latent channel, x y z space.
"""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.networks.conditioner import Pathway
from tensorldm.networks.layers import AnyStack, Conv, VoxelNorm


class Encoder(nn.Module):
    """Component volumes to latents before quantisation, the grid halved at every level but the first."""

    def __init__(self, channels: Sequence[int], *, latent_channels: int, patch: int = 1) -> None:
        super().__init__()
        self.pathway = Pathway(1, channels, patch=patch)
        self.norm = VoxelNorm(channels[-1])
        self.head = Conv(channels[-1], latent_channels)

    def forward(self, components: Float[Tensor, "b s x y z"]) -> AnyStack:
        """Latents of each component of the group."""
        features = self.pathway(components.unsqueeze(2))[-1]
        latents: Tensor = self.head(F.silu(self.norm(features)))
        return latents
