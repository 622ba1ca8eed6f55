"""The rivals as the training loop sees a method: the same loop, stages, checkpoints and validation as TensorLDM."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import Optimizer

from tensorldm.baselines.learned.bundles import read_rival_info, restore, write_rival
from tensorldm.baselines.learned.catalogue import BY_SLICES, RivalKind, RivalRow, build_rival
from tensorldm.baselines.learned.config import RivalRun, RivalStage
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.batch import Batch
from tensorldm.bundle_files import Card
from tensorldm.config.training import Box
from tensorldm.errors import ConfigError
from tensorldm.rng import generator
from tensorldm.shapes import Components
from tensorldm.training.latents import SUBJECTS
from tensorldm.training.method import Part
from tensorldm.training.sources import Source, cohort_of
from tensorldm.training.stages import make_optimizer

PROBE_SIDE = 32
"""Voxels a side of the volume that memory is measured on."""
SECOND_MOMENT = 0.999
"""Beta 2 of Adam, in the originals too."""


class RivalStageWork:
    """One stage of a rival, made ready."""

    def __init__(self, config: RivalRun, kind: RivalKind, row: RivalRow, *, start: Path | None) -> None:
        self.config, self.kind, self.outline = config, kind, row
        self.settings = config.stages[str(row.number)]
        self.model, self.card = starting_rival(config, start)
        self.model.volume = self.validation_box
        goals = self.model.goals(row.number, settings=self.settings, seed=config.seed)
        self.parts = make_parts(self.model, goals, settings=self.settings)

    @property
    def side_multiple(self) -> int:
        """The largest over the axes: boxes are given as whole multiples of it."""
        return max(self.model.multiples)

    @property
    def probe(self) -> Box:
        """A small cube; a rival of slices draws as many of them from any head, so its probe has all of the height."""
        side = -(-PROBE_SIDE // self.side_multiple) * self.side_multiple
        by_slices = self.model.multiples[2] == 1 < self.model.multiples[0]
        return side, side, self.settings.box[2] if by_slices else side

    @property
    def validation_box(self) -> Box:
        """The box of the last stage, which has whole volumes."""
        return self.config.stages[str(self.kind.rows[-1].number)].box

    def begin(self, source: Source, device: torch.device) -> None:
        """Let the rival measure what it fixes once."""
        stream = source.volumes(self.settings.box)
        batches: Iterator[Batch] = (
            stream.batch(seed=self.config.seed, position=position, size=1).to(device) for position in range(SUBJECTS)
        )
        self.model.begin(self.outline.number, batches, seed=self.config.seed)

    def remember(self, number: int) -> None:
        """Rivals keep nothing of a subject."""

    def reconstruct(self, batch: Batch, positions: Tensor) -> Components:
        """One tensor for each scan, as reconstruction would give it; of an autoencoder, the reference decoded."""
        recoded = self.model.recoded(batch, stage=self.outline.number)
        if recoded is not None:
            return recoded

        def noise(number: int, shape: tuple[int, ...]) -> Tensor:
            random = generator(self.config.seed, "validation noise", int(positions[0]), number)
            return torch.randn(shape, generator=random)

        sampling = Sampling(noise, num_steps=self.config.validation.sampler_steps)
        return self.model.reconstruct(
            batch.dwi,
            batch.bvals,
            directions=batch.directions,
            mask=batch.mask,
            voxel_size=batch.voxel_size,
            sampling=sampling,
        )

    def write(self, folder: Path, weights: dict[str, Tensor], *, card: Card) -> None:
        """A bundle of the rival."""
        card = card.model_copy(update={"title": self.kind.name})
        write_rival(folder, weights, rival=self.model, config=self.config.model, card=card)


@dataclass(frozen=True)
class RivalMethod:
    """A rival that is trained in stages."""

    kind: RivalKind

    @property
    def name(self) -> str:
        """As the command line has it."""
        return self.kind.name

    @cached_property
    def stages(self) -> Mapping[int, RivalRow]:
        """By number."""
        return self.kind.stages

    def prepare(self, config: RivalRun, number: int, *, start: Path | None) -> RivalStageWork:
        """A stage from the bundle it starts from, or afresh."""
        return RivalStageWork(config, self.kind, self.stages[number], start=start)

    def check_start(self, folder: Path, config: RivalRun) -> str:
        """The weights' hash; the bundle must be of this rival, size and form."""
        info = read_rival_info(folder)
        if info.model != config.model:
            raise ConfigError(
                f"{folder}: a model of another size or form than the configuration's. Use the one it was made with."
            )
        return info.weights_sha256

    def check_config(self, config: RivalRun, *, source: str) -> None:
        """The settings are of this rival, and describe each of its stages."""
        if config.model.method != self.name:
            raise ConfigError(
                f"{source}: settings of '{config.model.method}', but --method is {self.name}. Give one and the same."
            )
        if config.hardware.channels_last and self.name in BY_SLICES:
            raise ConfigError(
                f"{source}: hardware.channels_last is for volumes, and {self.name} works on slices. Set it to false."
            )
        scheme = cohort_of(config.data).protocol.scheme
        if scheme is not None and scheme.near_axes + scheme.any_triad < 1:
            raise ConfigError(
                f"{source}: some virtual scans of data.cohort '{config.data.cohort}' have more than three directions, "
                f"and {self.name} reads three. Let protocol.scheme.near_axes and any_triad be 1 together."
            )
        wanted, found = [str(number) for number in self.stages], sorted(config.stages)
        if wanted != found:
            raise ConfigError(
                f"{source}: stages {', '.join(found)} are described, but {self.name} has {', '.join(wanted)}. "
                "Describe each of them."
            )


def starting_rival(config: RivalRun, start: Path | None) -> tuple[Rival, Card]:
    """The rival that a stage begins with, and the card of what was trained before."""
    if start is None:
        return build_rival(config.model, name=config.model.method, seed=config.seed), Card()
    info = read_rival_info(start)
    return restore(start, info, seed=config.seed), info.card


def make_parts(rival: Rival, goals: list[Goal], *, settings: RivalStage) -> tuple[Part, ...]:
    """Each goal with its optimiser; what no goal moves is frozen."""
    movable = {name: parameter for name, parameter in rival.named_parameters() if parameter.requires_grad}
    parts, moved = [], set()
    for goal in goals:
        moving = {name: parameter for name, parameter in movable.items() if name.startswith(goal.moves)}
        optimizer, ordered = make_optimizer(moving, settings)
        _set_first_moment(optimizer, settings.first_moment)
        parts.append(Part(goal.name, goal.objective, ordered, optimizer))
        moved |= set(moving)
    for name, parameter in movable.items():
        parameter.requires_grad_(name in moved)
    return tuple(parts)


def _set_first_moment(optimizer: Optimizer, first: float) -> None:
    for group in optimizer.param_groups:
        group["betas"] = (first, SECOND_MOMENT)
