"""What the work on a subject depends on: the contents of its files, and every setting, as one hash."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from tensorldm.data.subject import Record
from tensorldm.imaging.gradients import FslFiles, find_gradients
from tensorldm.imaging.layouts import ScanFiles
from tensorldm.work.sources import SourceFile, describe_sources

WORK_VERSION = 1
"""Raised when the same files and settings would give another subject."""


def source_files(files: ScanFiles, *, known: Record | None = None) -> tuple[SourceFile, ...]:
    """Every file of a scan with its hash; one that ``known`` has, and that was not touched since, is not read."""
    return describe_sources(_roles(files), known=known.sources if known else ())


def inputs_hash(sources: Iterable[SourceFile], *, settings_sha256: str, person: str) -> str:
    """One hash of contents, settings and person; paths and times do not count."""
    value = {
        "work": WORK_VERSION,
        "settings": settings_sha256,
        "person": person,
        "sources": sorted((source.role, source.sha256) for source in sources),
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _roles(files: ScanFiles) -> list[tuple[str, Path]]:
    paths = {"dwi": files.dwi, "bval": files.bval, "bvec": files.bvec, "mask": files.mask, "grad_dev": files.grad_dev}
    if files.bval is None:
        found = find_gradients(files.dwi)
        paths |= found._asdict() if isinstance(found, FslFiles) else {"grad": found}
    return [(role, path) for role, path in paths.items() if path]
