"""Cutting a grid into cubic windows, and back, for any size and with or without a shift.

A grid is padded behind to whole windows and, if shifted, rolled by half a window, so the last window along an axis
holds tokens from both ends of the head. Neither padding nor the far end may be attended to. A mask per window would
have to be added to the bias and so expand it over windows; instead each token carries flags that do it inside the
product of queries and keys (``token_flags``), where a forbidden pair meets a large negative number and a permitted
pair exactly zero.
Axes: b batch, s member of the stack, f feature, x y z space, w window (b·g of them), n token in a window.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from tensorldm.networks.layers import AnyStack

WINDOW = 4
"""Side of a window in tokens [choice: window]."""
FLAGS = 8
"""Channels that flags take: one for padding, two for each axis, and one to spare, as fused kernels count in eights."""
FORBIDDEN = -1e4
"""Logit of a forbidden pair before scaling: its exponential is exactly 0 in float32, bfloat16 and float16."""

Tokens = Float[Tensor, "_ s n f"]


@dataclass(frozen=True)
class WindowGrid:
    """The windows of a grid of this size: shifted by ``shift`` tokens, or not (0)."""

    size: tuple[int, int, int]
    shift: int

    @property
    def padding(self) -> tuple[int, int, int]:
        """Tokens added behind on each axis."""
        x, y, z = (-side % WINDOW for side in self.size)
        return x, y, z

    @property
    def needs_flags(self) -> bool:
        """Whether any window holds tokens that others in it must not see."""
        return bool(self.shift) or any(self.padding)

    def arrange(self, stack: AnyStack) -> AnyStack:
        """Pad and roll, so that windows lie side by side from the first token."""
        if any(self.padding):
            x, y, z = self.padding
            stack = F.pad(stack, (0, z, 0, y, 0, x))
        return stack.roll((-self.shift,) * 3, dims=(-3, -2, -1)) if self.shift else stack

    def restore(self, stack: AnyStack) -> AnyStack:
        """Undo ``arrange``."""
        x, y, z = self.size
        unrolled = stack.roll((self.shift,) * 3, dims=(-3, -2, -1)) if self.shift else stack
        return unrolled[..., :x, :y, :z]

    def cut(self, arranged: AnyStack) -> Tokens:
        """The tokens of each window of an arranged stack."""
        return rearrange(
            arranged,
            "b s f (gx wx) (gy wy) (gz wz) -> (b gx gy gz) s (wx wy wz) f",
            wx=WINDOW,
            wy=WINDOW,
            wz=WINDOW,
        )

    def join(self, tokens: Tokens) -> AnyStack:
        """The arranged stack whose windows these are."""
        gx, gy, gz = (-(-side // WINDOW) for side in self.size)
        return rearrange(
            tokens,
            "(b gx gy gz) s (wx wy wz) f -> b s f (gx wx) (gy wy) (gz wz)",
            gx=gx,
            gy=gy,
            gz=gz,
            wx=WINDOW,
            wy=WINDOW,
            wz=WINDOW,
        )


def token_flags(grid: WindowGrid, like: Tensor) -> tuple[Float[Tensor, "g n k"], Float[Tensor, "g n k"]]:
    """Channels to append to queries and to keys; their products are FORBIDDEN for pairs that must not meet, else 0.

    A query says 1, and which side of the wrap it is on; a key answers with FORBIDDEN if it is padding, and for
    queries from the other side.
    """
    real = like.new_ones(1, 1, 1, *grid.size)
    ends = [(torch.arange(side, device=like.device) < grid.shift).to(like.dtype) for side in grid.size]
    wrapped = torch.stack(torch.meshgrid(*ends, indexing="ij"))[None, None]
    tokens = rearrange(grid.cut(grid.arrange(torch.cat([real, wrapped], dim=2))), "g 1 n f -> g n f")
    real, other = tokens[..., :1], tokens[..., 1:]
    here = 1 - other
    spare = torch.zeros_like(real)
    queries = torch.cat([torch.ones_like(real), other, here, spare], dim=-1)
    keys = torch.cat([1 - real, here, other, spare], dim=-1)
    return queries, FORBIDDEN * keys


def relative_positions() -> Int[Tensor, "n n"]:
    """Index of the offset between each two tokens of a window, into a table of (2·WINDOW - 1)³ offsets."""
    axis = torch.arange(WINDOW)
    coordinates = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), dim=-1).reshape(-1, 3)
    offsets = coordinates[:, None] - coordinates[None, :] + WINDOW - 1
    base = torch.tensor([(2 * WINDOW - 1) ** 2, 2 * WINDOW - 1, 1])
    return (offsets * base).sum(dim=-1)
