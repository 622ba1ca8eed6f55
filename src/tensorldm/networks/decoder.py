"""The six component decoders, run side by side: each component has its own weights (grouped convolutions).

Coarse to fine: residual blocks with FiLM from the scan at every resolution, Swin attention at chosen ones, and
from Stage 3 on cross-component attention and a joint fusion MLP, which sees all six components of a voxel at once.
Axes: b batch, s component (6), f feature, x y z space; levels are numbered from fine (0) to coarse.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.components import NUM_COMPONENTS
from tensorldm.networks.attention import AttentionMode, set_attention_mode, swin_pair
from tensorldm.networks.film import ResidualBlock
from tensorldm.networks.layers import Condition, Conv, Pointwise, Stack, Upsample, VoxelNorm, unfold_patches
from tensorldm.shapes import Latents


class FusionMlp(nn.Module):
    """Voxel-wise over all components: 6·channels → half → 6·channels, beside a skip; starts as the skip alone.

    With the paper's 256 channels it has exactly 2,361,600 parameters. [choice: fusion-mlp]
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        width = NUM_COMPONENTS * channels
        self.active = False
        self.narrow = Pointwise(width, width // 2)
        self.widen = Pointwise(width // 2, width).start_at_zero()

    def forward(self, stack: Stack) -> Stack:
        """Features, each voxel's six components made to agree; untouched before the joint stage."""
        if not self.active:
            return stack
        together = rearrange(stack, "b s f x y z -> b 1 (s f) x y z")
        update = self.widen(F.gelu(self.narrow(together)))
        agreed: Tensor = stack + rearrange(update, "b 1 (s f) x y z -> b s f x y z", s=NUM_COMPONENTS)
        return agreed


class DecoderLevel(nn.Module):
    """What happens at one resolution: blocks with FiLM, then attention where there is some."""

    def __init__(self, channels: int, *, condition_channels: int, num_blocks: int, heads: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            ResidualBlock(channels, channels, sets=NUM_COMPONENTS, condition_channels=condition_channels)
            for _ in range(num_blocks)
        )
        self.attention = swin_pair(channels, heads, sets=NUM_COMPONENTS) if heads else nn.Identity()

    def forward(self, stack: Stack, condition: Condition) -> Stack:
        """Features of the same grid and width."""
        for block in self.blocks:
            assert isinstance(block, ResidualBlock)
            stack = block(stack, block.modulation(condition))
        attended: Tensor = self.attention(stack)
        return attended


class Decoder(nn.Module):
    """Latents and anatomy to the six components."""

    def __init__(
        self,
        channels: Sequence[int],
        *,
        latent_channels: int,
        condition_channels: Sequence[int],
        num_blocks: int = 1,
        head_channels: int = 16,
        attention_levels: Collection[int],
        fusion_level: int = 0,
        end_channels: int | None = None,
        patch: int = 1,
    ) -> None:
        """``channels`` and ``condition_channels`` from fine to coarse; ``end_channels`` widen the last features.

        The finest level's voxels are cubes of ``patch`` voxels a side.
        """
        super().__init__()
        assert len(channels) == len(condition_channels), "the anatomy has as many levels as the decoder"
        sets = NUM_COMPONENTS
        end = channels[0] if end_channels is None else end_channels
        self.stem = Conv(latent_channels, channels[-1], sets=sets)
        self.levels = nn.ModuleList(
            DecoderLevel(
                width,
                condition_channels=condition,
                num_blocks=num_blocks,
                heads=width // head_channels if level in attention_levels else 0,
            )
            for level, (width, condition) in enumerate(zip(channels, condition_channels, strict=True))
        )
        self.ups = nn.ModuleList(Upsample(coarse, fine, sets=sets) for fine, coarse in pairwise(channels))
        self.end: nn.Module = nn.Identity() if end == channels[0] else Pointwise(channels[0], end, sets=sets)
        self.fusion_level = fusion_level
        self.fusion = FusionMlp(channels[fusion_level] if fusion_level else end)
        self.norm = VoxelNorm(end, sets=sets)
        self.patch = patch
        self.head = Conv(end, patch**3, sets=sets)

    def set_joint(self, mode: AttentionMode) -> None:
        """Join the components (attention and fusion) or keep them apart ("off")."""
        set_attention_mode(self, mode)
        self.fusion.active = mode != "off"

    def forward(self, latents: Latents, condition: Sequence[Condition]) -> Float[Tensor, "b 6 _ _ _"]:
        """Components in network units; ``condition`` from fine to coarse, one map for all components or one each."""
        stack = self.stem(latents)
        for level in reversed(range(len(self.levels))):
            stack = self.levels[level](stack, condition[level])
            if level == self.fusion_level and level > 0:
                stack = self.fusion(stack)
            if level > 0:
                stack = self.ups[level - 1](stack)
        stack = self.end(stack)
        if self.fusion_level == 0:
            stack = self.fusion(stack)
        components = unfold_patches(self.head(F.silu(self.norm(stack))), self.patch)
        return rearrange(components, "b s 1 x y z -> b s x y z")
