"""Swin window attention and cross-component attention (CCA) [E2, E3].

A window holds 4³ tokens of each component. Off, each component attends to its own 64 tokens. On, all 384 tokens
attend to each other: queries, keys and values are recombined over components by a 6×6 matrix per head (M_Q, M_K,
M_V), and the logits carry the relative position E_pos and the direction bias E_dir. Opening the softmax from 64 to
384 tokens changes it even with M = I and E_dir = 0, so the two are mixed by a gate per head that starts at zero:
(1 - a)·own + a·joint is exactly the old block at the moment of the switch [choice: cca-switch].
The bias is one heads × tokens × tokens array for all windows and subjects, never expanded.
Axes: b batch, s component, f feature, h head, k key size, w window, n token, x y z space.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.components import NUM_COMPONENTS
from tensorldm.networks.layers import Pointwise, Stack, VoxelNorm
from tensorldm.networks.windows import FLAGS, WINDOW, WindowGrid, relative_positions, token_flags

AttentionMode = Literal["off", "gated", "literal"]
"""off: each component alone. gated: own and joint attention mixed. literal: joint only, the paper's form."""

Split = Float[Tensor, "w s h n k"]
Heads = Float[Tensor, "w h n k"]
Bias = Float[Tensor, "h n n"]
Flags = tuple[Float[Tensor, "w _ _"], Float[Tensor, "w _ _"]]


class WindowAttention(nn.Module):
    """Multi-head attention in windows, alone or across components; ``sets=6`` gives each its own W and E_pos."""

    def __init__(self, channels: int, heads: int, *, sets: int = 1, shift: int = 0) -> None:
        super().__init__()
        assert channels % heads == 0, f"{channels} channels do not divide into {heads} heads"
        self.heads, self.shift = heads, shift
        self.mode: AttentionMode = "off"
        self.to_qkv = Pointwise(channels, 3 * channels, sets=sets)
        self.to_out = Pointwise(channels, channels, sets=sets).start_at_zero()
        self.position_bias = nn.Parameter(torch.zeros(sets, heads, (2 * WINDOW - 1) ** 3))
        self.register_buffer("positions", relative_positions(), persistent=False)
        self.positions: Tensor
        identity = torch.eye(NUM_COMPONENTS).repeat(heads, 1, 1)
        self.mix_query, self.mix_key, self.mix_value = (nn.Parameter(identity.clone()) for _ in range(3))
        self.direction_bias = nn.Parameter(torch.zeros(heads, NUM_COMPONENTS, NUM_COMPONENTS))
        self.gate = nn.Parameter(torch.zeros(heads))

    def forward(self, stack: Stack) -> Stack:
        """Attended features, before the residual sum."""
        x, y, z = stack.shape[-3:]
        grid = WindowGrid((x, y, z), shift=self.shift)
        tokens = grid.cut(self.to_qkv(grid.arrange(stack)))
        query, key, value = rearrange(tokens, "w s n (three h k) -> three w s h n k", three=3, h=self.heads)
        flags = _flags(grid, query) if grid.needs_flags else None
        if self.mode == "off":
            attended = self._own(query, key, value=value, flags=flags)
        elif self.mode == "literal":
            attended = self._joint(query, key, value=value, flags=flags)
        else:
            gate = self.gate.to(query.dtype).reshape(self.heads, 1, 1)
            own, joint = (part(query, key, value=value, flags=flags) for part in (self._own, self._joint))
            attended = (1 - gate) * own + gate * joint
        joined = grid.join(rearrange(attended, "w s h n k -> w s n (h k)"))
        return grid.restore(self.to_out(joined))

    def _own(self, query: Split, key: Split, *, value: Split, flags: Flags | None) -> Split:
        """Each component attends to its own tokens."""
        members = query.shape[1]
        bias = rearrange(self._spatial_bias().expand(members, -1, -1, -1), "s h n m -> (s h) n m")
        folded = (rearrange(part, "w s h n k -> w (s h) n k") for part in (query, key, value))
        return rearrange(attend(*folded, bias=bias, flags=flags), "w (s h) n k -> w s h n k", s=members)

    def _joint(self, query: Split, key: Split, *, value: Split, flags: Flags | None) -> Split:
        """All components attend to each other [E2, E3]."""
        members = query.shape[1]
        mixed = (
            einsum(matrix.to(part.dtype), part, "h s r, w r h n k -> w h s n k")
            for matrix, part in ((self.mix_query, query), (self.mix_key, key), (self.mix_value, value))
        )
        folded = (rearrange(part, "w h s n k -> w h (s n) k") for part in mixed)
        if flags is not None:
            flags = (flags[0].repeat(1, members, 1), flags[1].repeat(1, members, 1))
        attended = attend(*folded, bias=self.joint_bias(), flags=flags)
        return rearrange(attended, "w h (s n) k -> w s h n k", s=members)

    def joint_bias(self) -> Bias:
        """E_pos + E_dir over all 384 tokens; a component's queries use its own E_pos."""
        spatial = self._spatial_bias().expand(NUM_COMPONENTS, -1, -1, -1)
        both = rearrange(spatial, "s h n m -> h s n 1 m") + rearrange(self.direction_bias, "h s r -> h s 1 r 1")
        return rearrange(both, "h s n r m -> h (s n) (r m)")

    def _spatial_bias(self) -> Float[Tensor, "_ h n n"]:
        return self.position_bias[:, :, self.positions]


def attend(query: Heads, key: Heads, value: Heads, *, bias: Bias, flags: Flags | None) -> Heads:
    """Fused softmax attention with one bias for all windows; the flags keep apart what must not meet."""
    size = query.shape[-1]
    if flags is not None:
        query, key = (
            torch.cat([part, rearrange(flag, "w n k -> w 1 n k").expand(-1, part.shape[1], -1, -1)], dim=-1)
            for part, flag in zip((query, key), flags, strict=True)
        )
        value = F.pad(value, (0, FLAGS))  # fused kernels want values as wide as keys
    mask = rearrange(bias.to(query.dtype), "h n m -> 1 h n m")
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=size**-0.5)[..., :size]


def _flags(grid: WindowGrid, query: Split) -> Flags:
    """Flags of the tokens of every window of the batch."""
    queries, keys = token_flags(grid, query)
    batch = len(query) // len(queries)
    return queries.repeat(batch, 1, 1), keys.repeat(batch, 1, 1)


class SwinBlock(nn.Module):
    """Window attention, then a pointwise network, each beside a skip; starts as the skips alone."""

    def __init__(self, channels: int, heads: int, *, sets: int = 1, shift: int = 0, expansion: int = 2) -> None:
        super().__init__()
        self.norm_attention = VoxelNorm(channels, sets=sets)
        self.attention = WindowAttention(channels, heads, sets=sets, shift=shift)
        self.norm_mlp = VoxelNorm(channels, sets=sets)
        self.widen = Pointwise(channels, expansion * channels, sets=sets)
        self.narrow = Pointwise(expansion * channels, channels, sets=sets).start_at_zero()

    def forward(self, stack: Stack) -> Stack:
        """Features after attention and pointwise network."""
        stack = stack + self.attention(self.norm_attention(stack))
        update: Tensor = self.narrow(F.gelu(self.widen(self.norm_mlp(stack))))
        return stack + update


def swin_pair(channels: int, heads: int, *, sets: int = 1) -> nn.Sequential:
    """Two blocks; the second one's windows are shifted by half a window, so that windows talk to each other."""
    return nn.Sequential(*(SwinBlock(channels, heads, sets=sets, shift=shift) for shift in (0, WINDOW // 2)))


def set_attention_mode(network: nn.Module, mode: AttentionMode) -> None:
    """Switch every attention layer of a network: off, gated or literal."""
    for module in network.modules():
        if isinstance(module, WindowAttention):
            module.mode = mode
