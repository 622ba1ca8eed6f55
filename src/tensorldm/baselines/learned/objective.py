"""Parts that the rivals' losses share: the mean over the brain, and draws that belong to a sample's position.

Axes: b batch, f channel, x y z space.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tensorldm.baselines.learned.told import Told, tell_batch
from tensorldm.batch import Batch
from tensorldm.data.scaling import TensorScaling
from tensorldm.rng import generator
from tensorldm.shapes import Components, Masks
from tensorldm.training.recording import Recordable

Positions = Int[Tensor, " b"]


class RivalObjective(Recordable):
    """An objective of a rival, drawing per sample from the seed and the sample's position."""

    def __init__(self, scaling: TensorScaling, *, seed: int = 0, stage: int = 1) -> None:
        super().__init__()
        self.scaling, self.seed, self.stage = scaling, seed, stage

    def read(self, batch: Batch) -> tuple[Told, Components]:
        """What the rival is told, and the tensor it should give, in network units and zero outside the mask."""
        target = self.scaling.scale(batch.components) * batch.mask[:, None]
        return tell_batch(batch, self.scaling.per_component), target

    def generators(self, positions: Positions, device: torch.device) -> list[torch.Generator]:
        """One for each sample."""
        return [generator(self.seed, "rival", self.stage, p, device=device) for p in positions.tolist()]


def mean_inside(values: Float[Tensor, "b f x y z"], mask: Masks) -> Float[Tensor, ""]:
    """Mean over channels and each subject's mask, then over subjects."""
    inside = mask[:, None].to(values)
    voxels = inside.sum(dim=(1, 2, 3, 4)).clamp_min(1)
    return ((values * inside).sum(dim=(1, 2, 3, 4)) / (voxels * values.shape[1])).mean()
