"""A transformer over a grid of any size, for the rivals that have one.

Axes: b batch, n token, f channel; ``*grid`` is two or three axes of space.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

POSITIONS_A_SIDE = 8
"""Learned position codes a side; between them they are interpolated, so that a head of any size has its place."""
MLP_RATIO = 4


class GridTransformer(nn.Module):
    """Pre-norm transformer layers over all positions of a grid; the weights know no size."""

    def __init__(self, channels: int, *, layers: int, head_channels: int) -> None:
        super().__init__()
        assert channels % head_channels == 0, f"{channels} channels do not divide into heads of {head_channels}"
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                channels,
                channels // head_channels,
                dim_feedforward=MLP_RATIO * channels,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(channels)

    def forward(self, features: Float[Tensor, "b f *grid"]) -> Float[Tensor, "b f *grid"]:
        """Features after every position has seen every other."""
        tokens = rearrange(features.flatten(2), "b f n -> b n f")
        for layer in self.layers:
            tokens = layer(tokens)
        mixed: Tensor = rearrange(self.norm(tokens), "b n f -> b f n")
        return mixed.reshape(features.shape)


class Positions(nn.Module):
    """A learned code of the place in the field of view."""

    def __init__(self, channels: int, *, axes: int) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.zeros(1, channels, *(POSITIONS_A_SIDE,) * axes))

    def forward(self, features: Float[Tensor, "b f *grid"]) -> Float[Tensor, "b f *grid"]:
        """Features with the code of each position added."""
        mode = "bilinear" if features.ndim == 4 else "trilinear"
        codes = F.interpolate(self.codes, size=features.shape[2:], mode=mode, align_corners=True)
        return features + codes.to(features)
