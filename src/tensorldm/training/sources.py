"""Where subjects come from: a prepared store, or virtual heads.

``cohort:procedural``, ``cohort:templates:FOLDER``, or several joined: ``cohort:procedural+templates:FOLDER``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from tensorldm.batch import Batch
from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.config import CohortConfig, read_cohort
from tensorldm.cohort.sources import JOIN
from tensorldm.cohort.sources import open_source as open_cohort
from tensorldm.config.training import Box, DataConfig
from tensorldm.data.augment import Augmentation
from tensorldm.data.dataset import PatchStream, VolumeStream
from tensorldm.data.store import Store
from tensorldm.errors import DataError
from tensorldm.rng import derive_seed
from tensorldm.training.opened import OpenedStream, Pause, open_stream
from tensorldm.training.streams import Ahead, Boxed, Kept, Patches, Replayed, Stream

COHORT = "cohort:"
VALIDATION_ANATOMIES = 8
"""Procedural heads that validation subjects are made from."""
WAITING_BESIDE = 32
"""Heads that wait beside the first window: those that validate, and those that the latents' scale is measured on."""

StreamOf = Callable[[Box], Stream]
"""A stream of samples of a given box."""


@dataclass(frozen=True)
class Source:
    """Training and validation subjects of one run; the test split is never opened."""

    description: str
    num_anatomies: int
    """Independent anatomies among the training subjects."""
    repeating: int
    """Whole heads that come again under the same name with the same volumes, so that work on so many may be kept."""
    patches: StreamOf
    volumes: StreamOf
    validation: StreamOf

    def validation_subjects(
        self, number: int, *, box: Box, device: torch.device, seed: int, pause: Pause = lambda: None
    ) -> list[Batch]:
        """The first subjects of the validation split, the same in every stage and run of this seed."""
        stream = pausing(self.validation, pause)(box)
        seed = derive_seed(seed, "validation")
        return [stream.batch(seed=seed, position=position, size=1).to(device) for position in range(number)]

    def interrupted_by(self, pause: Pause) -> "Source":
        """The same for work between stages, which may stop before every batch; steps stop when they are done."""
        return replace(self, patches=pausing(self.patches, pause), volumes=pausing(self.volumes, pause))


@dataclass(frozen=True)
class Pausing:
    """A stream that may stop before every batch."""

    stream: Stream
    pause: Pause

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` samples from ``position`` on."""
        self.pause()
        return self.stream.batch(seed=seed, position=position, size=size)


def pausing(make: StreamOf, pause: Pause) -> StreamOf:
    """The same streams, pausing."""
    return lambda box: Pausing(make(box), pause)


def open_source(where: str, settings: DataConfig, *, device: torch.device, pause: Pause = lambda: None) -> Source:
    """Open what ``--data`` names; ``pause`` is called between the pieces and may end it by raising."""
    if where.startswith(COHORT):
        return _virtual(where, settings, device=device, pause=pause)
    return _stored(Path(where), settings)


def check_source(where: str, settings: DataConfig) -> None:
    """Refuse a ``--data`` that holds nothing to train on, before anything is read or made."""
    if where.startswith(COHORT):
        _anatomies(where.removeprefix(COHORT), "train", settings=settings)
    else:
        Store.open(Path(where))


def _stored(folder: Path, settings: DataConfig) -> Source:
    store = Store.open(folder)
    mirrored = Augmentation(mirror_axes=(0,)) if settings.mirror else Augmentation()
    return Source(
        description=f"store {folder.name}, {len(store.split('train'))} training subjects",
        num_anatomies=len({store.entry(name).record.person for name in store.split("train")}),
        repeating=0 if settings.mirror else len(store.split("train")),
        patches=lambda box: Ahead(PatchStream(store, size=box, augmentation=mirrored)),
        volumes=lambda box: Ahead(VolumeStream(store, box=box, augmentation=mirrored)),
        validation=lambda box: VolumeStream(store, split="validation", box=box),
    )


def _virtual(where: str, settings: DataConfig, *, device: torch.device, pause: Pause) -> Source:
    cohort = cohort_of(settings)

    def opened(split: str) -> OpenedStream:
        source = _anatomies(where.removeprefix(COHORT), split, settings=settings)
        heads = WAITING_BESIDE + (settings.replay_window if split == "train" else 0)
        return open_stream(
            source, where=where.removeprefix(COHORT), cohort=cohort, device=device, heads=heads, pause=pause
        )

    stream = opened("train")
    return Source(
        description=(
            f"{_without_folders(where)}, {stream.made.num_sources} anatomies, "
            f"{settings.subjects or 'endless'} virtual subjects"
        ),
        num_anatomies=stream.made.num_sources,
        repeating=settings.subjects or (settings.replay_window if settings.replays > 1 else 0),
        patches=lambda box: Patches(_heard_again(stream, settings, times=settings.patches_per_subject), box),
        volumes=lambda box: Boxed(_heard_again(stream, settings, times=settings.replays), box),
        validation=lambda box: Boxed(opened("validation").waiting, box),
    )


def _heard_again(stream: OpenedStream, settings: DataConfig, *, times: int) -> Stream:
    """A stream whose subjects come again: a fixed number of them always, those of an endless one ``times`` times."""
    if settings.subjects:
        return Kept(stream.waiting, settings.subjects, settings.cache_gib)
    if times > 1:
        return Replayed(stream.waiting, times, window=settings.replay_window, group=settings.replay_group)
    return stream.made


def cohort_of(settings: DataConfig) -> CohortConfig:
    """How virtual subjects vary, with the run's own changes."""
    return read_cohort(settings.cohort, settings.cohort_set)


def _without_folders(where: str) -> str:
    """A cohort's name for a model's card: the last part of each folder, not where it lay on this machine."""
    return JOIN.join(re.sub(r"templates:.*[\\/]", "templates:", part.rstrip("/")) for part in where.split(JOIN))


def _anatomies(name: str, split: str, *, settings: DataConfig) -> AnatomySource:
    """The anatomies of a split; procedural ones stand in for validation where the named sources have none."""
    heads = settings.anatomies if split == "train" else min(settings.anatomies, VALIDATION_ANATOMIES)
    choose = partial(
        open_cohort, split=split, settings=cohort_of(settings), subjects=heads, bundles=(), option=f"--data {COHORT}"
    )
    source = choose(name)
    if source.names:
        return source
    if split == "train":
        raise DataError(f"--data {COHORT}{name}: it holds no anatomies for training. Give other sources.")
    return choose("procedural")
