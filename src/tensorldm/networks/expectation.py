"""What a scan lets one expect: the mean tensor given the DWIs, by a direct regression [choice: expectation].

Diffusion then has only to model what the DWIs leave open: the autoencoder encodes and decodes the difference from
this mean, and the mean over samples returns to it. The network reads the minimum-norm tensor, which holds everything
that the volumes say about the tensor whatever their number, order and signs, and is told by a vector which patterns
of the tensor were measured and how well; so any directions serve. It starts as the minimum-norm tensor itself.
Axes: b batch, c DWI volume, a input channel, f feature, v scan vector, d component (6), x y z space.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tensorldm.batch import beside
from tensorldm.components import COLUMNS, NUM_COMPONENTS, ROWS
from tensorldm.dti.analytic import SMALLEST_CONTRAST
from tensorldm.dti.packing import MIRROR_SIGNS, TO_FROBENIUS
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.networks.compiling import compile_static
from tensorldm.networks.direction_conditioner import TYPICAL_B_S_PER_MM2
from tensorldm.networks.film import ResidualBlock
from tensorldm.networks.layers import (
    AnyStack,
    Conv,
    Downsample,
    Pointwise,
    Upsample,
    VoxelNorm,
    fold_patches,
    unfold_patches,
)
from tensorldm.shapes import Components, Dwi, Masks

LEAST_INFORMATION = SMALLEST_CONTRAST**2
"""Information about a pattern, relative to the best possible, at which it counts as half measured: the square of the
contrast below which ``dti.analytic.minimum_norm`` damps it."""
BRIGHTEST = 4.0
"""b=0 signal over the brain's; beyond it are only artefacts."""
HALF_HEAD_MM = 100.0
INPUT_CHANNELS = NUM_COMPONENTS + 2 + 1 + 3
"""Minimum-norm tensor, b=0 and mean weighted signal, mask, position."""
MIRROR_INPUTS = (*MIRROR_SIGNS, 1.0, 1.0, 1.0, -1.0, 1.0, 1.0)
"""Signs of the input channels when left and right change places: of positions, only the first turns."""
_UPPER = tuple((i, j) for i in range(NUM_COMPONENTS) for j in range(i, NUM_COMPONENTS))


class ScanEmbedding(nn.Module):
    """Which patterns of the tensor the volumes measure, and how well, as a vector.

    The information about the six components is M = Σ_c b_c² r_c r_cᵀ with r_c the outer product of c's direction: a
    sum over volumes, even in each direction, so neither order nor sign can matter.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2 * len(_UPPER) + 2, channels), nn.SiLU(), nn.Linear(channels, channels), nn.SiLU()
        )

    def describe(self, bvals: Float[Tensor, "b c"], directions: Float[Tensor, "b c 3"]) -> Float[Tensor, "b k"]:
        """What the layers read, worked out on the host and put where they are."""
        with torch.autocast("cpu", enabled=False):
            described = describe_scan(bvals.float().cpu(), directions.float().cpu())
        return beside(described, next(self.parameters()))

    def embed(self, described: Float[Tensor, "b k"]) -> Float[Tensor, "b 1 v"]:
        """One vector a scan."""
        embedded: Tensor = rearrange(self.layers(described), "b v -> b 1 v")
        return embedded

    def forward(self, bvals: Float[Tensor, "b c"], directions: Float[Tensor, "b c 3"]) -> Float[Tensor, "b 1 v"]:
        """Both."""
        return self.embed(self.describe(bvals, directions))


def describe_scan(bvals: Float[Tensor, "b c"], directions: Float[Tensor, "b c 3"]) -> Float[Tensor, "b k"]:
    """The share of each pattern that is measured, the information's shape, its strength and the typical b-value."""
    strength = bvals / TYPICAL_B_S_PER_MM2
    outer = directions[..., ROWS] * directions[..., COLUMNS] * directions.new_tensor(TO_FROBENIUS)
    rows = strength[..., None] * outer
    information = einsum(rows, rows, "b c i, b c j -> b i j")
    total = torch.diagonal(information, dim1=1, dim2=2).sum(dim=1)
    shape = information / total[:, None, None].clamp_min(1e-6)
    ridge = LEAST_INFORMATION * torch.eye(NUM_COMPONENTS, device=bvals.device)
    measured = torch.linalg.solve(shape + ridge, shape)
    number = (bvals > B0_MAX_S_PER_MM2).sum(dim=1).clamp_min(1)
    upper = tuple(torch.tensor(_UPPER).T)
    return torch.cat(
        [measured[:, *upper], shape[:, *upper], total.log()[:, None], (total / number).sqrt()[:, None]], dim=1
    )


def expectation_inputs(
    dwi: Dwi,
    bvals: Float[Tensor, "b c"],
    *,
    solved: Components,
    mask: Masks,
    centre: Float[Tensor, "b 3"],
    voxel_size: Float[Tensor, "b 3"],
) -> Float[Tensor, "b a x y z"]:
    """Input channels: the minimum-norm tensor ``solved`` (network units), signals, mask and place in the head.

    ``centre`` is the brain's, in voxels of this grid, which may be a part of it.
    """
    weighted = bvals > B0_MAX_S_PER_MM2
    kinds = torch.stack([~weighted, weighted], dim=1).to(dwi.dtype)
    shares = beside(kinds / kinds.sum(dim=2, keepdim=True).clamp_min(1), dwi)
    both = einsum(dwi, shares, "b c x y z, b k c -> b k x y z").clamp(0, BRIGHTEST)
    inside = mask.to(dwi)
    place = _positions(mask, centre, voxel_size=voxel_size).to(dwi)
    return torch.cat([solved, both, inside[:, None], place], dim=1) * inside[:, None]


def _positions(
    mask: Bool[Tensor, "b x y z"], centre: Float[Tensor, "b 3"], *, voxel_size: Float[Tensor, "b 3"]
) -> Float[Tensor, "b 3 x y z"]:
    """Half heads from the centre, along each axis."""
    sides = mask.shape[1:]
    steps = voxel_size.to(centre.device) / HALF_HEAD_MM
    along = [
        beside((torch.arange(side, device=centre.device) - centre[:, axis, None]) * steps[:, axis, None], mask)
        for axis, side in enumerate(sides)
    ]
    x, y, z = sides
    return torch.stack(
        [
            repeat(along[0], "b x -> b x y z", y=y, z=z),
            repeat(along[1], "b y -> b x y z", x=x, z=z),
            repeat(along[2], "b z -> b x y z", x=x, y=y),
        ],
        dim=1,
    )


class Expectation(nn.Module):
    """A U-Net on heads or parts of them, every block modulated by the scan's vector; adds to the minimum norm."""

    def __init__(
        self,
        channels: Sequence[int],
        *,
        num_blocks: Sequence[int],
        vector_channels: int,
        patch: int = 1,
        detail_channels: int = 0,
        mirrored: bool = False,
    ) -> None:
        """``channels`` and ``num_blocks`` (a side, each level) from fine to coarse; the coarsest level has one side.

        The finest level's voxels are cubes of ``patch`` voxels a side. ``detail_channels`` add a last look at single
        voxels, at full resolution. A ``mirrored`` one, once it is ready, looks both ways: see ``forward``.
        """
        super().__init__()
        assert len(channels) == len(num_blocks), "as many blocks as levels"
        self.channels, self.patch = tuple(channels), patch
        self.mirrored, self.both_ways = mirrored, False
        self.embedding = ScanEmbedding(vector_channels)

        def level(index: int) -> nn.ModuleList:
            width = channels[index]
            return nn.ModuleList(
                ResidualBlock(width, width, vector_channels=vector_channels) for _ in range(num_blocks[index])
            )

        pairs = list(pairwise(channels))
        self.stem = Conv(INPUT_CHANNELS * patch**3, channels[0])
        self.down_levels = nn.ModuleList(level(index) for index in range(len(channels)))
        self.downs = nn.ModuleList(Downsample(fine, coarse) for fine, coarse in pairs)
        self.up_levels = nn.ModuleList(level(index) for index in range(len(channels) - 1))
        self.ups = nn.ModuleList(Upsample(coarse, fine) for fine, coarse in pairs)
        self.merges = nn.ModuleList(Pointwise(2 * fine, fine) for fine, _ in pairs)
        self.norm = VoxelNorm(channels[0])
        self.head = Conv(channels[0], NUM_COMPONENTS * patch**3).start_at_zero()
        self.detail = (
            Detail(detail_channels, guide_channels=channels[0], vector_channels=vector_channels, patch=patch)
            if detail_channels
            else None
        )

    @property
    def side_multiple(self) -> int:
        """What the sides of a volume must be multiples of."""
        multiple: int = self.patch * 2 ** len(self.downs)
        return multiple

    def forward(
        self, inputs: Float[Tensor, "b a x y z"], bvals: Float[Tensor, "b c"], *, directions: Float[Tensor, "b c 3"]
    ) -> Float[Tensor, "b 6 x y z"]:
        """The expected tensor in network units; ``inputs`` as ``expectation_inputs`` makes them.

        Both ways: the mean of this and of what the mirrored scan gives, turned back. Some of the network's own errors
        cancel, and a mirrored head gets the mirrored tensor. [choice: mirror]
        """
        update = self._update(inputs, self.embedding(bvals, directions))
        if self.both_ways:
            update = (update + self._mirrored_update(inputs, bvals, directions)) / 2
        return inputs[:, :NUM_COMPONENTS] + update

    def one_way(
        self, inputs: Float[Tensor, "b a x y z"], described: Float[Tensor, "b k"]
    ) -> Float[Tensor, "b 6 x y z"]:
        """Without the mirror, of a scan that ``embedding.describe`` has described; nothing here needs the host."""
        return inputs[:, :NUM_COMPONENTS] + self._update(inputs, self.embedding.embed(described))

    def _mirrored_update(
        self, inputs: Float[Tensor, "b a x y z"], bvals: Float[Tensor, "b c"], directions: Float[Tensor, "b c 3"]
    ) -> Float[Tensor, "b 6 x y z"]:
        seen = inputs.flip(2) * beside(torch.tensor(MIRROR_INPUTS, dtype=inputs.dtype), inputs)[:, None, None, None]
        vector = self.embedding(bvals, directions * directions.new_tensor((-1.0, 1.0, 1.0)))
        update = self._update(seen, vector)
        signs = beside(torch.tensor(MIRROR_SIGNS, dtype=update.dtype), update)
        return update.flip(2) * signs[:, None, None, None]

    def _update(self, inputs: Float[Tensor, "b a x y z"], vector: Float[Tensor, "b 1 v"]) -> Float[Tensor, "b 6 x y z"]:
        """What is added to the minimum norm: all of the work, in shapes that do not depend on the number of volumes."""
        stack: AnyStack = self.stem(fold_patches(rearrange(inputs, "b a x y z -> b 1 a x y z"), self.patch))
        skips = []
        for index, blocks in enumerate(self.down_levels):
            stack = _through(blocks, stack, vector)
            if index < len(self.downs):
                skips.append(stack)
                stack = self.downs[index](stack)
        for index in reversed(range(len(self.up_levels))):
            stack = self.merges[index](torch.cat([self.ups[index](stack), skips[index]], dim=2))
            stack = _through(self.up_levels[index], stack, vector)
        guide = F.silu(self.norm(stack))
        update = unfold_patches(self.head(guide), self.patch)
        if self.detail is not None:
            update = update + self.detail(inputs, update, guide=guide, vector=vector)
        return rearrange(update, "b 1 d x y z -> b d x y z")

    def compile_whole(self) -> None:
        """One compiled graph, replayed as a CUDA graph: for small batches, starting kernels takes longer than they do.

        Names of weights do not change.
        """
        self._update = compile_static(self._update, mode="reduce-overhead")  # type: ignore[method-assign]


class Detail(nn.Module):
    """A last look at full resolution: what is noise in single voxels, told by the coarser features around them.

    Features of whole cubes cannot hold eight voxels' noise beside what they know of the anatomy.
    """

    def __init__(self, channels: int, *, guide_channels: int, vector_channels: int, patch: int) -> None:
        super().__init__()
        self.patch = patch
        self.guide = Pointwise(guide_channels, channels * patch**3)
        self.enter = Conv(INPUT_CHANNELS + NUM_COMPONENTS + channels, channels)
        self.block = ResidualBlock(channels, channels, vector_channels=vector_channels)
        self.norm = VoxelNorm(channels)
        self.head = Conv(channels, NUM_COMPONENTS).start_at_zero()

    def forward(
        self,
        inputs: Float[Tensor, "b a x y z"],
        update: Float[Tensor, "b 1 6 x y z"],
        *,
        guide: Float[Tensor, "b 1 f _ _ _"],
        vector: Float[Tensor, "b 1 v"],
    ) -> Float[Tensor, "b 1 6 x y z"]:
        """A correction of ``update``; none at first."""
        told = unfold_patches(self.guide(guide), self.patch)
        known = rearrange(inputs, "b a x y z -> b 1 a x y z")
        stack = self.enter(torch.cat([known.to(told), update.to(told), told], dim=2))
        corrected: Tensor = self.head(F.silu(self.norm(self.block(stack, vector=vector))))
        return corrected


def _through(blocks: nn.Module, stack: AnyStack, vector: Float[Tensor, "b 1 v"]) -> AnyStack:
    assert isinstance(blocks, nn.ModuleList)
    for block in blocks:
        stack = block(stack, vector=vector)
    return stack
