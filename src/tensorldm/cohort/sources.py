"""From a source's name on the command line to a source of anatomies.

``procedural``, ``templates:FOLDER``, or several of them joined by ``+``.
"""

from collections.abc import Sequence
from pathlib import Path

import torch

from tensorldm.cohort.anatomy import Anatomy, AnatomySource
from tensorldm.cohort.bundle_names import PAPER_BUNDLES
from tensorldm.cohort.config import CohortConfig
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.errors import ConfigError
from tensorldm.imaging.heads import SPLITS

TEMPLATES = "templates:"
JOIN = "+"
MOST_HEADS = 10_000
"""Their names have four digits."""


class JoinedSources:
    """The anatomies of several sources, one after the other; a name belongs to one of them."""

    def __init__(self, sources: Sequence[AnatomySource]) -> None:
        self._owners: dict[str, AnatomySource] = {}
        for source in sources:
            for name in source.names:
                if name in self._owners:
                    raise ConfigError(f"The anatomy '{name}' is in two of the joined sources. Leave one of them out.")
                self._owners[name] = source

    @property
    def names(self) -> Sequence[str]:
        """Every anatomy, in the order of the sources."""
        return list(self._owners)

    def load(self, name: str, *, device: torch.device | str = "cpu") -> Anatomy:
        """One anatomy from the source that has it."""
        return self._owners[name].load(name, device=device)


def open_source(
    name: str,
    split: str,
    *,
    settings: CohortConfig,
    subjects: int,
    bundles: tuple[str, ...] = PAPER_BUNDLES,
    option: str = "--source ",
) -> AnatomySource:
    """The named source, restricted to one split; ``subjects`` limits how many procedural heads there are.

    ``option`` is what stands before the name on the command line, for the sentence about a wrong one.
    """
    if split not in SPLITS:
        raise ConfigError(f"--split {split}: there is no such split. Give one of {', '.join(SPLITS)}.")
    parts = tuple(
        _open_part(part, split, settings=settings, subjects=subjects, bundles=bundles, option=option)
        for part in name.split(JOIN)
    )
    return parts[0] if len(parts) == 1 else JoinedSources(parts)


def _open_part(
    name: str, split: str, *, settings: CohortConfig, subjects: int, bundles: tuple[str, ...], option: str
) -> AnatomySource:
    if name == "procedural":
        count = min(subjects, MOST_HEADS)
        return ProceduralSource(split, count, shape=settings.shape, voxel_size=settings.voxel_mm, bundles=bundles)
    if name.startswith(TEMPLATES):
        from tensorldm.cohort.templates import GridChoice, TemplateSource

        # Folders are converted on the cohort's grid; packed anatomies keep their own, and a stream checks that
        # all agree.
        grid = GridChoice(settings.shape, settings.voxel_mm[0])
        if len(set(settings.voxel_mm)) > 1:
            raise ConfigError(f"voxel_mm is {list(settings.voxel_mm)}, but templates need voxels of equal sides.")
        return TemplateSource(Path(name.removeprefix(TEMPLATES)), split=split, grid=grid, bundles=bundles)
    raise ConfigError(
        f"{option}{name}: there is no such source. Give procedural, {TEMPLATES}FOLDER, or several joined by {JOIN}."
    )
