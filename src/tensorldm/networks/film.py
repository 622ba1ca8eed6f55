"""Feature-wise linear modulation (FiLM) and the residual block that carries it.

Two conditions may modulate a block: maps (anatomy from the DWIs, one value a voxel) and a vector (the diffusion
time, or a volume's b-value and direction). Both start as the identity, so that a network first learns without them.
Axes: b batch, s member of the stack, f feature channel, v condition vector, x y z space.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.networks.layers import AnyStack, Condition, Conv, Pointwise, Stack, Vectors, VoxelNorm


@dataclass(frozen=True)
class Modulation:
    """Gain and shift; maps have the features' grid, vectors a grid of one voxel. A batch of one serves any batch."""

    gain: AnyStack
    shift: AnyStack

    def apply(self, stack: Stack) -> Stack:
        """features · gain + shift, in one pass over memory."""
        return torch.addcmul(self.shift, stack, self.gain)


class FilmMaps(nn.Module):
    """Modulation of each voxel by conditioning features at the same place.

    With ``sets`` weights each component reads the condition in its own way, whether the condition is one map
    shared by all of them (Φ_X) or a map for each (Φ^d): the weights are the same.
    """

    def __init__(self, channels: int, condition_channels: int, *, sets: int = 1) -> None:
        super().__init__()
        self.to_modulation = Pointwise(condition_channels, 2 * channels, sets=sets).start_at_zero()

    def forward(self, condition: Condition) -> Modulation:
        """Gain and shift maps; ``condition`` has one member, or as many as the features."""
        gain, shift = self.to_modulation(condition).chunk(2, dim=2)
        return Modulation(1 + gain, shift)


class FilmVector(nn.Module):
    """The same modulation at every voxel, from a vector."""

    def __init__(self, channels: int, vector_channels: int) -> None:
        super().__init__()
        self.to_modulation = nn.Linear(vector_channels, 2 * channels)
        nn.init.zeros_(self.to_modulation.weight)
        nn.init.zeros_(self.to_modulation.bias)

    def forward(self, vector: Vectors) -> Modulation:
        """Gain and shift of each member; one member's vector serves all (the diffusion time)."""
        both = rearrange(self.to_modulation(vector), "b s (two f) -> two b s f 1 1 1", two=2)
        return Modulation(1 + both[0], both[1])


class ResidualBlock(nn.Module):
    """Two convolutions beside a skip, modulated between them; starts as the skip alone."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        sets: int = 1,
        condition_channels: int = 0,
        vector_channels: int = 0,
    ) -> None:
        super().__init__()
        self.norm_in = VoxelNorm(in_channels, sets=sets)
        self.conv_in = Conv(in_channels, out_channels, sets=sets)
        self.norm_out = VoxelNorm(out_channels, sets=sets)
        self.conv_out = Conv(out_channels, out_channels, sets=sets).start_at_zero()
        self.skip: nn.Module = nn.Identity()
        if in_channels != out_channels:
            self.skip = Pointwise(in_channels, out_channels, sets=sets)
        self.film = FilmMaps(out_channels, condition_channels, sets=sets) if condition_channels else None
        self.film_vector = FilmVector(out_channels, vector_channels) if vector_channels else None

    def modulation(self, condition: Condition) -> Modulation:
        """What ``forward`` takes as ``maps``; computed apart, so that a sampler can do it once for all steps."""
        assert self.film is not None, "this block has no FiLM maps"
        modulation: Modulation = self.film(condition)
        return modulation

    def forward(
        self, stack: AnyStack, maps: Modulation | None = None, *, vector: Float[Tensor, "_ _ v"] | None = None
    ) -> AnyStack:
        """Features of ``out_channels`` channels."""
        hidden = self.norm_out(self.conv_in(F.silu(self.norm_in(stack))))
        if self.film_vector is not None:
            assert vector is not None, "this block is modulated by a vector"
            hidden = self.film_vector(vector).apply(hidden)
        if self.film is not None:
            assert maps is not None, "this block is modulated by maps"
            hidden = maps.apply(hidden)
        kept: Tensor = self.skip(stack)
        update: Tensor = self.conv_out(F.silu(hidden))
        return kept + update
