"""The layers every network here is made of, on stacks of volumes.

A stack holds parallel volumes of one subject: the six tensor components, or the DWI volumes. A layer either
shares one set of weights over the stack (``sets=1``: folded into the batch) or gives each member its own
(``sets=6``: folded into the channels of a grouped convolution). Only the layers of this module fold.
Axes: b batch, s member of the stack, f feature channel, x y z space.
"""

from math import sqrt

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

Stack = Float[Tensor, "b s f x y z"]
AnyStack = Float[Tensor, "b s _ _ _ _"]
"""A stack whose channels or grid differ from those of the function's other stacks."""
Condition = Float[Tensor, "_ _ _ _ _ _"]
"""Features that modulate a stack; a batch of one serves any batch, and one member may serve all."""
Vectors = Float[Tensor, "b s v"]
"""One vector for each member of the stack."""

NORM_EPSILON = 1e-6  # [choice: voxel-norm] far below the mean square of any feature that carries something


class Conv(nn.Module):
    """3×3×3 convolution of a stack, with one set of weights for all members or one for each."""

    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1, sets: int = 1) -> None:
        super().__init__()
        self.sets, self.stride = sets, stride
        self.weight = nn.Parameter(torch.empty(sets * out_channels, in_channels, 3, 3, 3))
        self.bias = nn.Parameter(torch.zeros(sets * out_channels))
        nn.init.normal_(self.weight, std=1 / sqrt(27 * in_channels))

    def forward(self, stack: AnyStack) -> AnyStack:
        """Every member convolved."""
        members = stack.shape[1]
        if self.sets == 1:
            folded = self._convolve(rearrange(stack, "b s f x y z -> (b s) f x y z"), self.weight, bias=self.bias)
            return rearrange(folded, "(b s) f x y z -> b s f x y z", s=members)
        assert members == self.sets, f"{self.sets} sets of weights for {members} members"
        return self._convolve_one_by_one(stack) if stack.is_cuda else self._convolve_grouped(stack)

    def _convolve(self, folded: Tensor, weight: Tensor, *, bias: Tensor, groups: int = 1) -> Tensor:
        return F.conv3d(folded, weight, bias, stride=self.stride, padding=1, groups=groups)

    def _convolve_grouped(self, stack: AnyStack) -> AnyStack:
        """Each member with its own weights in one call: the faster way on a CPU."""
        folded = rearrange(stack, "b s f x y z -> b (s f) x y z")
        convolved = self._convolve(folded, self.weight, bias=self.bias, groups=self.sets)
        return rearrange(convolved, "b (s f) x y z -> b s f x y z", s=self.sets)

    def _convolve_one_by_one(self, stack: AnyStack) -> AnyStack:
        """Each member with its own weights in a call of its own: cuDNN has no fast kernels for 3D groups.

        A member is a view, whatever the memory format, so nothing is copied on the way in.
        """
        parts = zip(stack.unbind(1), self.weight.chunk(self.sets), self.bias.chunk(self.sets), strict=True)
        return torch.stack([self._convolve(part, weight, bias=bias) for part, weight, bias in parts], dim=1)

    def start_at_zero(self) -> "Conv":
        """Zero the weights: a residual branch that ends in this layer starts as nothing."""
        nn.init.zeros_(self.weight)
        return self


class Pointwise(nn.Module):
    """A linear map of each voxel's channels (a 1×1×1 convolution, as a matrix product: faster on every device).

    With ``sets`` weights and a stack of one member, that member is read in ``sets`` ways, giving ``sets`` members.
    """

    def __init__(self, in_channels: int, out_channels: int, *, sets: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sets, in_channels, out_channels))
        self.bias = nn.Parameter(torch.zeros(sets, out_channels))
        nn.init.normal_(self.weight, std=1 / sqrt(in_channels))

    def forward(self, stack: Float[Tensor, "b _ _ x y z"]) -> Float[Tensor, "b _ _ x y z"]:
        """Every member mapped; the result lies channels-last in memory."""
        members, sets = stack.shape[1], len(self.weight)
        assert sets == 1 or members in (1, sets), f"{sets} sets of weights for {members} members"
        if sets == 1:
            return map_channels(stack, self.weight[0], self.bias[0])
        x, y, z = stack.shape[-3:]
        voxels = rearrange(stack, "b s f x y z -> b s (x y z) f")
        if members == 1:
            together = F.linear(voxels, rearrange(self.weight, "s f g -> (s g) f"), self.bias.flatten())
            mapped = rearrange(together, "b 1 n (s g) -> b s n g", s=sets)
        else:
            mapped = torch.matmul(voxels, self.weight)
            mapped = mapped + self.bias[:, None].to(mapped.dtype)
        return rearrange(mapped, "b s (x y z) f -> b s f x y z", x=x, y=y, z=z)

    def start_at_zero(self) -> "Pointwise":
        """Zero the weights: a residual branch that ends in this layer starts as nothing."""
        nn.init.zeros_(self.weight)
        return self


class VoxelNorm(nn.Module):
    """Root-mean-square norm over the channels of each voxel [choice: voxel-norm].

    No statistic is taken over space, so a patch, a crop and the whole brain are normalised alike: what is learned
    on 32³ patches holds on full volumes, and the amount of background around a head changes nothing inside it.
    """

    def __init__(self, channels: int, *, sets: int = 1) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(sets, channels, 1, 1, 1))

    def forward(self, stack: Stack) -> Stack:
        """Features of mean square one at each voxel, times a learned scale; the square is summed in float32."""
        length = torch.linalg.vector_norm(stack, dim=2, keepdim=True, dtype=_wide(stack.dtype))
        inverse = torch.rsqrt(length.square() / stack.shape[2] + NORM_EPSILON)
        return stack * inverse.to(stack.dtype) * self.scale.to(stack.dtype)


class Downsample(nn.Module):
    """Half the grid on each axis, by a strided convolution."""

    def __init__(self, in_channels: int, out_channels: int, *, sets: int = 1) -> None:
        super().__init__()
        self.conv = Conv(in_channels, out_channels, stride=2, sets=sets)

    def forward(self, stack: AnyStack) -> AnyStack:
        """Features at half the resolution."""
        halved: Tensor = self.conv(stack)
        return halved


class Upsample(nn.Module):
    """Twice the grid: channels first (eight times cheaper there), then nearest neighbour; the next block smooths."""

    def __init__(self, in_channels: int, out_channels: int, *, sets: int = 1) -> None:
        super().__init__()
        self.narrow = Pointwise(in_channels, out_channels, sets=sets)

    def forward(self, stack: AnyStack) -> AnyStack:
        """Features at twice the resolution."""
        return self.enlarge(self.narrow(stack))

    def enlarge(self, narrow: AnyStack) -> AnyStack:
        """Every voxel eight times."""
        return enlarge(narrow, 2)


def map_channels(
    stack: Float[Tensor, "b s _ x y z"], weight: Float[Tensor, "_ _"], bias: Float[Tensor, " _"] | None = None
) -> Float[Tensor, "b s _ x y z"]:
    """Each voxel's channels times ``weight`` (in × out); the result lies channels-last in memory."""
    x, y, z = stack.shape[-3:]
    mapped = F.linear(rearrange(stack, "b s f x y z -> b s (x y z) f"), weight.T, bias)
    return rearrange(mapped, "b s (x y z) f -> b s f x y z", x=x, y=y, z=z)


def average_pool(stack: AnyStack, factor: int) -> AnyStack:
    """Mean over cubes of ``factor`` voxels a side."""
    if factor == 1:
        return stack
    folded = F.avg_pool3d(rearrange(stack, "b s f x y z -> (b s) f x y z"), factor)
    return rearrange(folded, "(b s) f x y z -> b s f x y z", s=stack.shape[1])


def enlarge(stack: AnyStack, factor: int) -> AnyStack:
    """Every voxel becomes a cube of ``factor`` voxels a side."""
    if factor == 1:
        return stack
    folded = F.interpolate(rearrange(stack, "b s f x y z -> (b s) f x y z"), scale_factor=float(factor), mode="nearest")
    return rearrange(folded, "(b s) f x y z -> b s f x y z", s=stack.shape[1])


def fold_patches(stack: AnyStack, side: int) -> AnyStack:
    """Cubes of ``side`` voxels a side become channels of one coarse voxel: wide, small features suit every device."""
    if side == 1:
        return stack
    return rearrange(stack, "b s f (x p) (y q) (z r) -> b s (f p q r) x y z", p=side, q=side, r=side)


def unfold_patches(stack: AnyStack, side: int) -> AnyStack:
    """The inverse of ``fold_patches``."""
    if side == 1:
        return stack
    return rearrange(stack, "b s (f p q r) x y z -> b s f (x p) (y q) (z r)", p=side, q=side, r=side)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
