"""Φ^d as the decoders read it: on every level's grid, in every level's width [choice: decoder-condition].

The experts look at one resolution, the latents', and FiLM sits at every level. Channels are mapped first, where voxels
are fewest, then voxels are repeated, as everywhere in the decoders. FiLM keeps the weights that it has learned for Φ_X
and has to learn anew what it is told. The maps do not start at zero: at the paper's rate they would stay near it, and
the decoders deaf, for thousands of steps.
Axes: b batch, d component (6), f feature, x y z space; levels run from fine to coarse.
"""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from tensorldm.networks.layers import Condition, Pointwise, enlarge
from tensorldm.shapes import Latents

DecoderCondition = Literal["anatomy", "moe"]
"""What the decoders read of the scan: Φ_X, one map for all components, or Φ^d, a map for each."""


class ExpertLevels(nn.Module):
    """One map of channels for each level of the decoders, the same for all components: FiLM has weights for each."""

    def __init__(self, expert_channels: int, channels: Sequence[int]) -> None:
        """``channels`` are those that the decoders' FiLM reads, from fine to coarse."""
        super().__init__()
        self.narrow = nn.ModuleList(Pointwise(expert_channels, width) for width in channels)

    def forward(self, mixed: Latents) -> tuple[Condition, ...]:
        """Φ^d for every level, fine to coarse; the coarsest has the latents' grid."""
        last = len(self.narrow) - 1
        return tuple(enlarge(narrow(mixed), 2 ** (last - level)) for level, narrow in enumerate(self.narrow))
