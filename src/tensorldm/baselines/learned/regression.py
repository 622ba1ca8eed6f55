"""``unet``: the six components regressed at once by a 3D U-Net; what a sceptic asks for first.

It is made of TensorLDM's own blocks at the size of the whole model, is trained with E5 (|error| and the Log-Euclidean
distance) and starts as the minimum-norm tensor [choice: rival-unet]. A mean given the scan is all that it can give.
Axes: b batch, f channel, x y z space; stacks have one member.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.baselines.learned.config import RegressionModel
from tensorldm.baselines.learned.objective import Positions, RivalObjective
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.baselines.learned.told import NUM_CHANNELS, SOLVED, Told
from tensorldm.batch import Batch
from tensorldm.components import NUM_COMPONENTS
from tensorldm.config.training import ErrorKind, StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.networks.film import ResidualBlock
from tensorldm.networks.layers import AnyStack, Conv, Downsample, Pointwise, Upsample, VoxelNorm
from tensorldm.shapes import Components, Masks
from tensorldm.training.objectives import component_error, log_distance
from tensorldm.training.recording import Evaluated, Gathered


class RegressionNetwork(nn.Module):
    """A U-Net of residual blocks whose output is added to the minimum-norm tensor."""

    def __init__(self, channels: Sequence[int], num_blocks: Sequence[int]) -> None:
        super().__init__()
        pairs = list(pairwise(channels))

        def level(index: int) -> nn.Sequential:
            width = channels[index]
            return nn.Sequential(*(ResidualBlock(width, width) for _ in range(num_blocks[index])))

        self.stem = Conv(NUM_CHANNELS, channels[0])
        self.down_levels = nn.ModuleList(level(index) for index in range(len(channels)))
        self.downs = nn.ModuleList(Downsample(fine, coarse) for fine, coarse in pairs)
        self.up_levels = nn.ModuleList(level(index) for index in range(len(pairs)))
        self.ups = nn.ModuleList(Upsample(coarse, fine) for fine, coarse in pairs)
        self.merges = nn.ModuleList(Pointwise(2 * fine, fine) for fine, _ in pairs)
        self.norm = VoxelNorm(channels[0])
        self.head = Conv(channels[0], NUM_COMPONENTS).start_at_zero()

    def forward(self, channels: Float[Tensor, "b f x y z"]) -> Components:
        """Components in network units."""
        stack: AnyStack = self.stem(rearrange(channels, "b f x y z -> b 1 f x y z"))
        skips = []
        for blocks, down in zip(self.down_levels[:-1], self.downs, strict=True):
            stack = blocks(stack)
            skips.append(stack)
            stack = down(stack)
        stack = self.down_levels[-1](stack)
        for up, merge, blocks in reversed(list(zip(self.ups, self.merges, self.up_levels, strict=True))):
            stack = blocks(merge(torch.cat([up(stack), skips.pop()], dim=2)))
        update: Tensor = self.head(F.silu(self.norm(stack)))
        return channels[:, SOLVED] + rearrange(update, "b 1 d x y z -> b d x y z")


class Regression(Rival):
    """The network by itself. Its norms are those of single voxels, and it learns from patches."""

    sees_surroundings = False

    def __init__(self, config: RegressionModel, scaling: TensorScaling) -> None:
        super().__init__(scaling)
        self.network = RegressionNetwork(config.channels, config.blocks)
        side = 2 ** (len(config.channels) - 1)
        self._multiples = (side, side, side)

    @property
    def multiples(self) -> tuple[int, int, int]:
        """Each level halves every side."""
        return self._multiples

    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:  # noqa: ARG002  nothing is drawn
        """The same in both stages: patches first, then whole volumes."""
        weight, kind = settings.lem_weight, settings.error
        objective = RegressionObjective(self.network, self.scaling, lem_weight=weight, kind=kind)
        return [Goal("model", objective, ("network.",))]

    def estimate(self, told: Told, sampling: Sampling) -> Components:  # noqa: ARG002  it gives one tensor
        """The regressed tensor."""
        return self.scaling.unscale(self.network(told.channels).float())


class RegressionObjective(RivalObjective):
    """E5 of a regressed tensor, or the same with squared errors."""

    def __init__(
        self, network: RegressionNetwork, scaling: TensorScaling, *, lem_weight: float, kind: ErrorKind = "absolute"
    ) -> None:
        super().__init__(scaling)
        self.network, self.lem_weight, self.kind = network, lem_weight, kind

    def gather(self, batch: Batch, positions: Positions) -> Gathered:  # noqa: ARG002  nothing is drawn
        """Channels, the tensor that they should give, and where."""
        told, target = self.read(batch)
        return told.channels, target, batch.mask

    def evaluate(self, channels: Float[Tensor, "b f x y z"], target: Components, mask: Masks) -> Evaluated:
        """Loss and its terms."""
        found = self.network(channels).float()
        error = component_error(found, target, mask=mask, kind=self.kind).mean()
        logs = {"regression": error.detach()}
        if not self.lem_weight:
            return Evaluated(error, logs)
        tensors, reference = self.scaling.unscale(found), self.scaling.unscale(target.float())
        distance = log_distance(tensors, reference, mask=mask).mean()
        return Evaluated(error + self.lem_weight * distance, logs | {"log_distance": distance.detach()})
