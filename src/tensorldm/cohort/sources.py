"""From a source's name on the command line to a source of anatomies."""

from pathlib import Path

from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.config import CohortConfig
from tensorldm.cohort.manifest import SPLITS
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.errors import ConfigError

TEMPLATES = "templates:"
MOST_HEADS = 10_000
"""Their names have four digits."""


def open_source(name: str, split: str, *, settings: CohortConfig, subjects: int) -> AnatomySource:
    """``procedural`` (one head for each subject) or ``templates:FOLDER``, restricted to one split."""
    if split not in SPLITS:
        raise ConfigError(f"--split {split}: there is no such split. Give one of {', '.join(SPLITS)}.")
    if name == "procedural":
        return ProceduralSource(
            split, count=min(subjects, MOST_HEADS), shape=settings.shape, voxel_size=settings.voxel_mm
        )
    if name.startswith(TEMPLATES):
        from tensorldm.cohort.templates import TemplateSource

        return TemplateSource(Path(name.removeprefix(TEMPLATES)), split=split)
    raise ConfigError(f"--source {name}: there is no such source. Give procedural or {TEMPLATES}FOLDER.")
