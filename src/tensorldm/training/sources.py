"""Where subjects come from: a prepared store, or virtual heads (``cohort:procedural``, ``cohort:templates:DIR``)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tensorldm.batch import Batch
from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.stream import VirtualStream
from tensorldm.config.training import Box, DataConfig
from tensorldm.data.augment import Augmentation
from tensorldm.data.dataset import PatchStream, VolumeStream
from tensorldm.data.store import Store
from tensorldm.errors import ConfigError
from tensorldm.rng import derive_seed
from tensorldm.training.cohort_settings import read_cohort_settings
from tensorldm.training.streams import Ahead, Boxed, Kept, Patches, Stream

PROCEDURAL = "cohort:procedural"
TEMPLATES = "cohort:templates:"
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
    repeats: bool
    """Whether a subject's name always means the same volumes, so that what is computed from them may be kept."""
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
    if where == PROCEDURAL:
        return _virtual(where, settings, device=device, split_source=lambda split: _procedural(split, settings))
    if where.startswith(TEMPLATES):
        folder = Path(where.removeprefix(TEMPLATES))
        return _virtual(where, settings, device=device, split_source=lambda split: _templates(folder, split))
    if where.startswith("cohort:"):
        raise ConfigError(f"--data {where}: there is no such cohort. Give {PROCEDURAL} or {TEMPLATES}FOLDER.")
    return _stored(Path(where), settings)


def _stored(folder: Path, settings: DataConfig) -> Source:
    store = Store.open(folder)
    mirrored = Augmentation(mirror_axes=(0,)) if settings.mirror else Augmentation()
    return Source(
        description=f"store {folder.name}, {len(store.split('train'))} training subjects",
        num_anatomies=len({store.entry(name).record.person for name in store.split("train")}),
        repeats=not settings.mirror,
        patches=lambda box: Ahead(PatchStream(store, size=box, augmentation=mirrored)),
        volumes=lambda box: Ahead(VolumeStream(store, box=box, augmentation=mirrored)),
        validation=lambda box: VolumeStream(store, split="validation", box=box),
    )


def _virtual(
    where: str,
    settings: DataConfig,
    *,
    device: torch.device,
    split_source: Callable[[str], tuple[AnatomySource, list[str]]],
) -> Source:
    varied = read_cohort_settings(settings.cohort)
    source, names = split_source("train")
    stream = VirtualStream.from_source(source, names, settings=varied, device=device)
    heads: Stream = Kept(stream, settings.subjects, settings.cache_gib) if settings.subjects else stream

    def validation(box: Box) -> Stream:
        held_out, held_out_names = split_source("validation")
        return Boxed(VirtualStream.from_source(held_out, held_out_names, settings=varied, device=device), box)

    return Source(
        description=f"{where}, {len(names)} anatomies, {settings.subjects or 'endless'} virtual subjects",
        num_anatomies=stream.num_sources,
        repeats=settings.subjects > 0,
        patches=lambda box: Patches(heads, box, per_subject=settings.patches_per_subject),
        volumes=lambda box: Boxed(heads, box),
        validation=validation,
    )


def _procedural(split: str, settings: DataConfig) -> tuple[AnatomySource, list[str]]:
    count = settings.anatomies if split == "train" else min(settings.anatomies, VALIDATION_ANATOMIES)
    side = settings.voxel_mm
    source = ProceduralSource(split, count, shape=settings.grid, voxel_size=(side, side, side), bundles=())
    return source, list(source.names)


def _templates(folder: Path, split: str) -> tuple[AnatomySource, list[str]]:
    from tensorldm.cohort.templates import TemplateSource

    source = TemplateSource(folder, split=split)
    return source, list(source.names)
