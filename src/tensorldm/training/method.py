"""The contract between a method and the training loop: which stages it has, and what a stage trains.

TensorLDM and its rivals fulfil it (`paper_stage`, `baselines.learned.training`), so that all are trained, resumed,
validated and written down by the same code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tensorldm.batch import Batch
from tensorldm.bundle import Card
from tensorldm.config.training import Box
from tensorldm.shapes import Components
from tensorldm.training.sources import Source


@runtime_checkable
class Outline(Protocol):
    """What can be said of a stage before anything is built."""

    @property
    def number(self) -> int:
        """Its place among the method's stages."""
        ...

    @property
    def title(self) -> str:
        """What the progress bar calls it."""
        ...

    @property
    def data(self) -> Literal["patches", "volumes"]:
        """What it is trained on."""
        ...

    @property
    def starts_from(self) -> tuple[int, ...]:
        """Stages whose bundle it may start from, the last finished one is taken."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether it may start from nothing."""
        ...


@dataclass(frozen=True)
class Part:
    """An objective with the parameters it moves, before Fabric wraps it; a part becomes a player of the loop."""

    name: str
    objective: nn.Module
    moving: dict[str, nn.Parameter]
    """In the order of the optimiser's groups."""
    optimizer: Optimizer


@runtime_checkable
class StageWork(Protocol):
    """A stage made ready, still on the CPU: what the loop trains, and what becomes of it."""

    @property
    def outline(self) -> Outline:
        """Which stage it is."""
        ...

    @property
    def model(self) -> nn.Module:
        """All state that a checkpoint keeps and the running average follows."""
        ...

    @property
    def parts(self) -> Sequence[Part]:
        """What trains, in the order of turns within a step. The first one's loss is the stage's loss."""
        ...

    @property
    def card(self) -> Card:
        """Of the bundle it started from."""
        ...

    @property
    def side_multiple(self) -> int:
        """What the sides of a box must be multiples of."""
        ...

    @property
    def probe(self) -> Box:
        """A small volume on which memory can be measured; it grows with the number of voxels from there."""
        ...

    @property
    def validation_box(self) -> Box:
        """Of the whole heads that are validated on."""
        ...

    def begin(self, source: Source, device: torch.device) -> None:
        """Measure from the data what the stage fixes once, before its first step; a resumed stage has it already."""
        ...

    def remember(self, number: int) -> None:
        """The last subjects come again under their names, so what is computed from so many of them may be kept."""
        ...

    def reconstruct(self, batch: Batch, positions: Tensor) -> Components:
        """Components in mm²/s as the stage makes them, for validation."""
        ...

    def write(self, folder: Path, weights: dict[str, Tensor], *, card: Card) -> None:
        """The bundle of these weights."""
        ...


@runtime_checkable
class TrainedMethod(Protocol):
    """A method that is trained in stages."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def stages(self) -> Mapping[int, Outline]:
        """By number, in order."""
        ...

    def prepare(self, config: Any, number: int, *, start: Path | None) -> StageWork:
        """A stage from the bundle it starts from, or afresh; ``config`` is of the method's own schema."""
        ...

    def check_start(self, folder: Path, config: Any) -> str:
        """The weights' hash of a bundle to start from; a ``ConfigError`` where it is of another form."""
        ...
