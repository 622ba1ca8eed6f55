"""Where subjects come from: a prepared store, or virtual heads.

``cohort:procedural``, ``cohort:templates:FOLDER``, or several joined: ``cohort:procedural+templates:FOLDER``.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from tensorldm.batch import Batch
from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.config import CohortConfig, read_cohort
from tensorldm.cohort.sources import JOIN
from tensorldm.cohort.sources import open_source as open_cohort
from tensorldm.cohort.stream import VirtualStream
from tensorldm.config.training import Box, DataConfig
from tensorldm.data.augment import Augmentation
from tensorldm.data.dataset import PatchStream, VolumeStream
from tensorldm.data.store import Store
from tensorldm.errors import DataError
from tensorldm.rng import derive_seed
from tensorldm.training.streams import Ahead, Boxed, Kept, Patches, Replayed, Stream

COHORT = "cohort:"
VALIDATION_ANATOMIES = 8
"""Procedural heads that validation subjects are made from."""

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

    def validation_subjects(self, number: int, *, box: Box, device: torch.device, seed: int) -> list[Batch]:
        """The first subjects of the validation split, the same in every stage and run of this seed."""
        stream = self.validation(box)
        seed = derive_seed(seed, "validation")
        return [stream.batch(seed=seed, position=position, size=1).to(device) for position in range(number)]


def open_source(where: str, settings: DataConfig, *, device: torch.device) -> Source:
    """Open what ``--data`` names."""
    if where.startswith(COHORT):
        return _virtual(where, settings, device=device)
    return _stored(Path(where), settings)


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


def _virtual(where: str, settings: DataConfig, *, device: torch.device) -> Source:
    varied = cohort_of(settings).settings

    def stream_of(split: str) -> VirtualStream:
        source = _anatomies(where.removeprefix(COHORT), split, settings=settings)
        return VirtualStream.from_source(source, source.names, settings=varied, device=device)

    stream = stream_of("train")
    return Source(
        description=(
            f"{_without_folders(where)}, {stream.num_sources} anatomies, "
            f"{settings.subjects or 'endless'} virtual subjects"
        ),
        num_anatomies=stream.num_sources,
        repeating=settings.subjects or (settings.replay_window if settings.replays > 1 else 0),
        patches=lambda box: Patches(_heard_again(stream, settings, times=settings.patches_per_subject), box),
        volumes=lambda box: Boxed(_heard_again(stream, settings, times=settings.replays), box),
        validation=lambda box: Boxed(stream_of("validation"), box),
    )


def _heard_again(stream: Stream, settings: DataConfig, *, times: int) -> Stream:
    """A stream whose subjects come again: a fixed number of them always, those of an endless one ``times`` times."""
    if settings.subjects:
        return Kept(stream, settings.subjects, settings.cache_gib)
    if times > 1:
        return Replayed(stream, times, window=settings.replay_window, group=settings.replay_group)
    return stream


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
