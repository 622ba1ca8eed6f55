"""What the DWIs say about the anatomy: a contract with two forms, and the paper's form of it.

Each DWI volume c runs through a pathway that gives features φ_c at every resolution. Fused over volumes by learned
convolutions they are Φ_X, which conditions the decoders (Phase I); the same φ_c, brought to the latents' grid, go
to the experts (Phase II). Here each of the four volumes has a pathway of its own and its gradient is not looked at;
``direction_conditioner`` is the form that reads it.
Axes: b batch, c DWI volume, f feature, v gradient embedding, x y z space; levels run from fine to coarse.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.networks.film import ResidualBlock
from tensorldm.networks.layers import AnyStack, Conv, Downsample, Vectors, average_pool, fold_patches
from tensorldm.shapes import Components, Dwi

BValues = Float[Tensor, "b c"]
Gradients = Float[Tensor, "b c 3"]


@dataclass(frozen=True)
class ScanFeatures:
    """What is known of one scan; computed once, used by every step and every sample."""

    fused: tuple[Float[Tensor, "b 1 _ _ _ _"], ...]
    """Φ_X at every level, fine to coarse: one map for all components; empty where nobody will read it."""
    pooled: Float[Tensor, "b c _ _ _ _"]
    """φ̄_c: the features of each volume at all levels, on the latents' grid."""
    gradients: Float[Tensor, "b c v"]
    """γ_c, the embedding of each volume's b and direction; without entries where the form does not read them."""
    expected: Float[Tensor, "b 6 _ _ _"] | None = None
    """The tensor that is expected of the scan, in network units: what latents are the difference from."""
    spread: Float[Tensor, "b 6 _ _ _"] | None = None
    """How far tensors lie from it, in network units: what latents count the difference in."""

    def difference(self, components: Components) -> Components:
        """What is encoded: the difference from the expectation, in units of the spread, which no such use moves."""
        if self.expected is None:
            return components
        difference = components - self.expected.to(components.dtype)
        return difference if self.spread is None else difference / self.spread.detach().to(components.dtype)

    def undo_difference(self, decoded: Components) -> Components:
        """The components of which ``decoded`` is the difference."""
        if self.expected is None:
            return decoded
        return (decoded if self.spread is None else decoded * self.spread.detach()) + self.expected


def pool_levels(levels: Sequence[AnyStack]) -> AnyStack:
    """Features of all levels brought to the coarsest grid, which is the latents', and concatenated."""
    last = len(levels) - 1
    return torch.cat([average_pool(level, 2 ** (last - i)) for i, level in enumerate(levels)], dim=2)


class Conditioner(nn.Module, ABC):
    """Contract of both forms; ``channels`` are the features' at each level, fine to coarse."""

    channels: tuple[int, ...]
    pooled_channels: int
    """Channels of φ̄_c."""
    gradient_channels: int
    """Entries of γ_c; 0 in the paper's form."""

    @abstractmethod
    def forward(
        self,
        dwi: Dwi,
        bvals: BValues,
        *,
        directions: Gradients,
        analytic: Float[Tensor, "b a x y z"] | None = None,
        adc: Dwi | None = None,
    ) -> ScanFeatures:
        """Features of a scan whose sides are multiples of the coarsest level's voxel."""


class Pathway(nn.Module):
    """A small encoder of a stack of volumes: a residual block at each level, each of half the last one's grid.

    The first level's voxels are cubes of ``patch`` voxels a side.
    """

    def __init__(
        self,
        in_channels: int,
        channels: Sequence[int],
        *,
        sets: int = 1,
        vector_channels: int = 0,
        patch: int = 1,
    ) -> None:
        super().__init__()
        self.patch = patch
        self.stem = Conv(in_channels * patch**3, channels[0], sets=sets)
        self.blocks = nn.ModuleList(
            ResidualBlock(width, width, sets=sets, vector_channels=vector_channels) for width in channels
        )
        self.downs = nn.ModuleList(Downsample(fine, coarse, sets=sets) for fine, coarse in pairwise(channels))

    def forward(self, stack: AnyStack, vector: Vectors | None = None) -> tuple[AnyStack, ...]:
        """Features at every level, fine to coarse."""
        features = self.blocks[0](self.stem(fold_patches(stack, self.patch)), vector=vector)
        levels = [features]
        for down, block in zip(self.downs, list(self.blocks)[1:], strict=True):
            features = block(down(features), vector=vector)
            levels.append(features)
        return tuple(levels)


class FixedConditioner(Conditioner):
    """The paper's: one pathway for each of a fixed number of volumes, in a fixed order (b0 x y z)."""

    def __init__(self, channels: Sequence[int], *, num_volumes: int = 4, patch: int = 1) -> None:
        super().__init__()
        self.channels = tuple(channels)
        self.pooled_channels = sum(channels)
        self.gradient_channels = 0
        self.num_volumes = num_volumes
        self.pathways = Pathway(1, channels, sets=num_volumes, patch=patch)
        self.fuse = nn.ModuleList(Conv(num_volumes * width, width) for width in channels)

    def forward(
        self,
        dwi: Dwi,
        bvals: BValues,
        *,
        directions: Gradients,  # noqa: ARG002  the paper's form does not look at the gradients
        analytic: Float[Tensor, "b a x y z"] | None = None,  # noqa: ARG002
        adc: Dwi | None = None,  # noqa: ARG002
    ) -> ScanFeatures:
        """Features of exactly ``num_volumes`` volumes."""
        assert dwi.shape[1] == self.num_volumes, f"{dwi.shape[1]} volumes for {self.num_volumes} pathways"
        volumes = self.pathways(rearrange(dwi, "b c x y z -> b c 1 x y z"))
        fused = tuple(
            fuse(rearrange(level, "b c f x y z -> b 1 (c f) x y z"))
            for fuse, level in zip(self.fuse, volumes, strict=True)
        )
        return ScanFeatures(fused, pool_levels(volumes), gradients=dwi.new_zeros(*bvals.shape, 0))
