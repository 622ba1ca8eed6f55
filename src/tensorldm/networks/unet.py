"""The one denoising U-Net that serves all six components [E8, E9].

Its input is the noisy latent with the component embedding e_d. Φ^d modulates every block by FiLM; the diffusion time
has its own path and never passes through Φ^d, so everything but time is computed once (``condition``) and used for
all steps and samples (``denoise``). Components meet only in the attention, and only once it is switched on.
Axes: b batch, d component (6), f channel, x y z space, t diffusion step; levels are numbered from fine (0) to coarse.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from tensorldm.networks.attention import AttentionMode, set_attention_mode, swin_pair
from tensorldm.networks.embeddings import ComponentEmbedding, Coordinates, TimeEmbedding
from tensorldm.networks.film import Modulation, ResidualBlock
from tensorldm.networks.layers import (
    AnyStack,
    Condition,
    Conv,
    Downsample,
    Pointwise,
    Stack,
    Upsample,
    VoxelNorm,
    average_pool,
    map_channels,
)
from tensorldm.shapes import Latents


@dataclass(frozen=True)
class DenoiseCondition:
    """All that the U-Net knows beside latents and time; a batch of one serves any number of samples."""

    entry: AnyStack
    """The component embedding's share of the first convolution."""
    down: tuple[tuple[Modulation, ...], ...]
    up: tuple[tuple[Modulation, ...], ...]
    """FiLM maps of each block of each level."""


class UNetLevel(nn.Module):
    """Blocks with FiLM and time at one resolution, then attention where there is some."""

    def __init__(
        self, channels: int, *, num_blocks: int, condition_channels: int, time_channels: int, heads: int
    ) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            ResidualBlock(channels, channels, condition_channels=condition_channels, vector_channels=time_channels)
            for _ in range(num_blocks)
        )
        self.attention = swin_pair(channels, heads) if heads else nn.Identity()

    def modulations(self, condition: Condition) -> tuple[Modulation, ...]:
        """FiLM maps of the blocks."""
        return tuple(block.modulation(condition) for block in self._blocks())

    def forward(self, stack: Stack, maps: Sequence[Modulation], *, time: Float[Tensor, "_ 1 v"]) -> Stack:
        """Features of the same grid and width."""
        for block, block_maps in zip(self._blocks(), maps, strict=True):
            stack = block(stack, block_maps, vector=time)
        attended: Tensor = self.attention(stack)
        return attended

    def _blocks(self) -> list[ResidualBlock]:
        return [block for block in self.blocks if isinstance(block, ResidualBlock)]


class UNet(nn.Module):
    """Prediction for the noisy latents of all six components."""

    def __init__(
        self,
        channels: Sequence[int],
        *,
        latent_channels: int,
        condition_channels: int,
        embedding_channels: int = 16,
        time_channels: int = 128,
        num_blocks: int = 1,
        head_channels: int = 16,
        attention_levels: Collection[int],
    ) -> None:
        super().__init__()
        self.component_embedding = ComponentEmbedding(embedding_channels)
        self.time_embedding = TimeEmbedding(time_channels)
        self.enter_latents = Conv(latent_channels, channels[0])
        self.enter_embedding = Conv(embedding_channels, channels[0])

        def level(index: int) -> UNetLevel:
            heads = channels[index] // head_channels if index in attention_levels else 0
            return UNetLevel(
                channels[index],
                num_blocks=num_blocks,
                condition_channels=condition_channels,
                time_channels=time_channels,
                heads=heads,
            )

        pairs = list(pairwise(channels))
        self.down_levels = nn.ModuleList(level(index) for index in range(len(channels)))
        self.downs = nn.ModuleList(Downsample(fine, coarse) for fine, coarse in pairs)
        self.up_levels = nn.ModuleList(level(index) for index in range(len(channels) - 1))
        self.ups = nn.ModuleList(Upsample(coarse, fine) for fine, coarse in pairs)
        self.merges = nn.ModuleList(Pointwise(2 * fine, fine) for fine, _ in pairs)
        self.norm = VoxelNorm(channels[0])
        self.head = Conv(channels[0], latent_channels).start_at_zero()

    @property
    def side_multiple(self) -> int:
        """What the sides of the latents' grid must be multiples of."""
        multiple: int = 2 ** len(self.downs)
        return multiple

    def set_joint(self, mode: AttentionMode) -> None:
        """Let the components attend to each other, or keep them apart ("off")."""
        set_attention_mode(self, mode)

    def condition(self, features: Latents, coordinates: Coordinates) -> DenoiseCondition:
        """FiLM maps of Φ^d at every level and the embedding of component and place."""
        pyramid = [average_pool(features, 2**index) for index in range(len(self.down_levels))]
        return DenoiseCondition(
            entry=self.enter_embedding(self.component_embedding(coordinates)),
            down=tuple(level.modulations(maps) for level, maps in zip(_levels(self.down_levels), pyramid, strict=True)),
            up=tuple(
                level.modulations(maps) for level, maps in zip(_levels(self.up_levels), pyramid[:-1], strict=True)
            ),
        )

    def denoise(self, latents: Latents, steps: Int[Tensor, " _"], *, condition: DenoiseCondition) -> Latents:
        """The network's prediction at diffusion step t: of each member of the batch, or one for all."""
        time = rearrange(self.time_embedding(steps), "b v -> b 1 v")
        # A convolution of the concatenation [z_t; e_d] is the sum of two; that of e_d is the same at every step.
        stack = self.enter_latents(latents) + condition.entry
        skips = []
        for index, level in enumerate(self.down_levels):
            stack = level(stack, condition.down[index], time=time)
            if index < len(self.downs):
                skips.append(stack)
                stack = self.downs[index](stack)
        for index in reversed(range(len(self.up_levels))):
            stack = self._merge(index, stack, skip=skips[index])
            stack = self.up_levels[index](stack, condition.up[index], time=time)
        prediction: Tensor = self.head(F.silu(self.norm(stack)))
        return prediction

    def _merge(self, index: int, coarse: AnyStack, *, skip: Stack) -> Stack:
        """The merge of [upsampled; skip], without laying the two side by side.

        A map of channels commutes with the copying of voxels: the upsampled half is mapped where it is eight times
        smaller, and the halves meet in a sum.
        """
        up, merge, width = self.ups[index], self.merges[index], skip.shape[2]
        assert isinstance(up, Upsample)
        assert isinstance(merge, Pointwise)
        from_coarse, from_skip = merge.weight[0, :width], merge.weight[0, width:]
        return up.enlarge(map_channels(up.narrow(coarse), from_coarse)) + map_channels(skip, from_skip, merge.bias[0])

    def forward(
        self,
        latents: Latents,
        steps: Int[Tensor, " b"],
        *,
        features: Float[Tensor, "b 6 _ x y z"],
        coordinates: Coordinates,
    ) -> Latents:
        """Condition and denoise in one call, as training does."""
        return self.denoise(latents, steps, condition=self.condition(features, coordinates))


def _levels(modules: nn.ModuleList) -> list[UNetLevel]:
    return [module for module in modules if isinstance(module, UNetLevel)]
