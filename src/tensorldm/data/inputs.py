"""What the work on a subject depends on: the contents of its files, and every setting, as one hash."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from tensorldm.data.store import file_hash
from tensorldm.data.subject import Record, SourceFile
from tensorldm.errors import DataError
from tensorldm.imaging.gradients import FslFiles, find_gradients
from tensorldm.imaging.layouts import ScanFiles

WORK_VERSION = 1
"""Raised when the same files and settings would give another subject."""


def source_files(files: ScanFiles, *, known: Record | None = None) -> tuple[SourceFile, ...]:
    """Every file of a scan with its hash.

    A file of the size and time that ``known`` has for it is taken to be unchanged, as ``make`` would, and not read:
    the thousand series of a large cohort take hours to hash.
    """
    earlier = {(s.role, s.path, s.num_bytes, s.mtime_ns): s for s in known.sources} if known else {}
    return tuple(
        earlier.get((role, str(path), num_bytes, mtime_ns))
        or SourceFile(role=role, path=str(path), sha256=file_hash(path), num_bytes=num_bytes, mtime_ns=mtime_ns)
        for role, path, num_bytes, mtime_ns in _described(files)
    )


def inputs_hash(sources: Iterable[SourceFile], *, settings_sha256: str, person: str) -> str:
    """One hash of contents, settings and person; paths and times do not count."""
    value = {
        "work": WORK_VERSION,
        "settings": settings_sha256,
        "person": person,
        "sources": sorted((source.role, source.sha256) for source in sources),
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _described(files: ScanFiles) -> list[tuple[str, Path, int, int]]:
    paths = {"dwi": files.dwi, "bval": files.bval, "bvec": files.bvec, "mask": files.mask, "grad_dev": files.grad_dev}
    if files.bval is None:
        found = find_gradients(files.dwi)
        paths |= found._asdict() if isinstance(found, FslFiles) else {"grad": found}
    try:
        return [(r, path, (stat := path.stat()).st_size, stat.st_mtime_ns) for r, path in paths.items() if path]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror}). Check the file.") from error
