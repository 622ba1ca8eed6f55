"""A conditioner that is told its gradients: any number of volumes, in any order.

All volumes share one pathway, modulated by γ_c, an embedding of (b, ggᵀ). The embedding is even in g, so a direction
and its opposite are the same measurement to the network, bit for bit. Volumes are fused by weights that are a softmax
over volumes of a function of γ_c, per feature, so their order does not matter. What three directions do determine
of the tensor goes in too: the minimum-norm tensor as a pathway of its own and each volume's ADC beside its signal.
Axes: b batch, c DWI volume, a analytic channel, f feature, v gradient embedding, x y z space.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.batch import beside
from tensorldm.components import COLUMNS, NUM_COMPONENTS, ROWS
from tensorldm.networks.conditioner import BValues, Conditioner, Gradients, Pathway, ScanFeatures, pool_levels
from tensorldm.networks.layers import Conv, Vectors
from tensorldm.shapes import Dwi

TYPICAL_B_S_PER_MM2 = 1000.0


class GradientEmbedding(nn.Module):
    """γ_c: b-value and direction of a volume as a vector, the same for g and -g."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inputs = 1 + 2 * NUM_COMPONENTS
        self.layers = nn.Sequential(nn.Linear(inputs, channels), nn.SiLU(), nn.Linear(channels, channels))

    def forward(self, bvals: BValues, directions: Gradients) -> Vectors:
        """One vector a volume; a b=0 volume has b ≈ 0 and no direction."""
        strength = bvals[..., None] / TYPICAL_B_S_PER_MM2
        g = directions.unbind(-1)
        outer = torch.stack([g[row] * g[column] for row, column in zip(ROWS, COLUMNS, strict=True)], dim=-1)
        told = torch.cat([strength, outer, strength * outer], dim=-1)
        embedded: Tensor = self.layers(beside(told, next(self.parameters())))
        return embedded


class DirectionConditioner(Conditioner):
    """One modulated pathway for all volumes, and one for the minimum-norm tensor."""

    def __init__(
        self,
        channels: Sequence[int],
        *,
        gradient_channels: int = 32,
        analytic_channels: int = NUM_COMPONENTS,
        patch: int = 1,
    ) -> None:
        super().__init__()
        self.channels = tuple(channels)
        self.pooled_channels = 2 * sum(channels)
        self.gradient_channels = gradient_channels
        self.gradient_embedding = GradientEmbedding(gradient_channels)
        self.pathway = Pathway(2, channels, vector_channels=gradient_channels, patch=patch)
        self.analytic_pathway = Pathway(analytic_channels, channels, patch=patch)
        self.weigh = nn.ModuleList(nn.Linear(gradient_channels, width) for width in channels)
        self.fuse = nn.ModuleList(Conv(2 * width, width) for width in channels)

    def forward(
        self,
        dwi: Dwi,
        bvals: BValues,
        *,
        directions: Gradients,
        analytic: Float[Tensor, "b a x y z"] | None = None,
        adc: Dwi | None = None,
    ) -> ScanFeatures:
        """Features of any number of volumes; ``analytic`` and ``adc`` are in network units."""
        assert analytic is not None, "this form reads the minimum-norm tensor"
        assert adc is not None, "this form reads the ADC maps"
        gradients = self.gradient_embedding(bvals, directions)
        own = self.pathway(torch.stack([dwi, adc], dim=2), F.silu(gradients))
        solved = self.analytic_pathway(rearrange(analytic, "b a x y z -> b 1 a x y z"))
        fused = tuple(
            fuse(torch.cat([_weighted_sum(level, weigh(gradients)), tensor_level], dim=2))
            for level, tensor_level, weigh, fuse in zip(own, solved, self.weigh, self.fuse, strict=True)
        )
        known = pool_levels(solved).expand(-1, dwi.shape[1], -1, -1, -1, -1)
        pooled = torch.cat([pool_levels(own), known], dim=2)
        return ScanFeatures(fused, pooled, gradients=gradients)


def _weighted_sum(stack: Float[Tensor, "b c f x y z"], logits: Float[Tensor, "b c f"]) -> Float[Tensor, "b 1 f x y z"]:
    """Each feature averaged over volumes with its own weights."""
    weights = logits.softmax(dim=1).to(stack.dtype)
    return rearrange(einsum(stack, weights, "b c f x y z, b c f -> b f x y z"), "b f x y z -> b 1 f x y z")
