"""The contract of a learned rival: what it minimises in each of its stages, and how it makes a tensor of a scan."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.baselines.learned.laying import Volume, behind, laid_into
from tensorldm.baselines.learned.slices import AT_ONCE
from tensorldm.baselines.learned.told import Told, tell
from tensorldm.batch import Batch
from tensorldm.config.training import StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.shapes import Components, Dwi, Masks

Noise = Callable[[int, tuple[int, ...]], Tensor]
"""(number of the sample, shape) -> noise: a function of these alone, whatever is drawn beside it."""


@dataclass(frozen=True)
class Sampling:
    """How a stochastic rival draws, and in what pieces a rival works."""

    noise: Noise
    num_samples: int = 1
    num_steps: int = 25
    sampler: str = "ddim"
    first: int = 0
    """Number of the first sample: samples may be drawn a few at a time, and each is the same as among all."""
    slices_at_once: int = AT_ONCE
    """For the rivals that work on slices."""


@dataclass(frozen=True)
class Goal:
    """An objective (``forward(batch, positions)``: loss and logs), and the starts of the names of what it moves."""

    name: str
    objective: nn.Module
    moves: tuple[str, ...]


class Rival(nn.Module, ABC):
    """Networks with their losses and their way to a tensor; network units are those of ``scaling``."""

    stochastic: ClassVar[bool] = False
    training_only: ClassVar[tuple[str, ...]] = ()
    """Starts of the names of state that reconstruction does not need; a bundle leaves it out."""
    sees_surroundings: ClassVar[bool] = True
    """Whether layers see all of a volume, as norms of groups and transformers do: then it makes a difference how much
    background there is, and a scan is laid into a volume as large as those of training."""

    def __init__(self, scaling: TensorScaling) -> None:
        super().__init__()
        self.scaling = scaling
        self.volume: Volume | None = None
        """Sides of the volumes it is trained in, as far as known; a bundle has them beside the weights."""

    @property
    @abstractmethod
    def multiples(self) -> tuple[int, int, int]:
        """What the sides of a volume must be multiples of, axis by axis."""

    @abstractmethod
    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:
        """What a stage trains, in the order of turns within a step; the first one's loss is the stage's."""

    @abstractmethod
    def estimate(self, told: Told, sampling: Sampling) -> Float[Tensor, "k 6 x y z"]:
        """Tensors of one scan in mm²/s, on a grid of whole ``multiples``; outside the mask anything."""

    def begin(self, stage: int, batches: Iterable[Batch], *, seed: int) -> None:
        """Measure from training subjects what a stage fixes once, before its first step."""

    def recoded(self, batch: Batch, *, stage: int) -> Components | None:  # noqa: ARG002  for those that have latents
        """Of a stage that trains an autoencoder: the reference in mm²/s, decoded from its own codes.

        Nothing can draw latents yet, and this is the most that they can give. None of a stage that reconstructs.
        """
        return None

    def reconstruct(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        sampling: Sampling,
    ) -> Float[Tensor, "k 6 x y z"]:
        """Tensors of one scan of any size in mm²/s, zero outside the mask; one for each sample."""
        assert len(dwi) == 1, "one scan at a time"
        volume = self.volume if self.sees_surroundings else None
        laying = laid_into(mask, volume, self.multiples) if volume else behind(mask, self.multiples)
        with torch.no_grad():
            found = self.read_and_estimate(
                laying.there(dwi),
                bvals,
                directions=directions,
                mask=laying.there(mask),
                voxel_size=voxel_size,
                sampling=sampling,
            )
        return laying.back(found).float() * mask[:, None]

    def read_and_estimate(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        sampling: Sampling,
    ) -> Float[Tensor, "k 6 x y z"]:
        """Tensors of one scan on a grid of whole ``multiples``; outside the mask anything that is finite."""
        told = tell(
            dwi,
            bvals,
            directions=directions,
            mask=mask,
            voxel_size=voxel_size,
            component_scales=self.scaling.per_component,
        )
        return self.estimate(told, sampling)
