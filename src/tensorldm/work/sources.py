"""The files that a piece of work depends on, by their contents; a file that has not been touched is not read again."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tensorldm.config.reading import Strict
from tensorldm.errors import DataError


class SourceFile(Strict):
    """An input file as it was read; size and time let a second run trust the hash without reading it again."""

    role: str
    path: str
    sha256: str
    num_bytes: int
    mtime_ns: int


def describe_sources(files: Iterable[tuple[str, Path]], *, known: Iterable[SourceFile] = ()) -> tuple[SourceFile, ...]:
    """Every file, given by role and path, with its hash.

    A file of the size and time that ``known`` has for it is taken to be unchanged, as ``make`` would, and not read:
    the thousand series of a large cohort take hours to hash.
    """
    earlier = {(source.role, source.path, source.num_bytes, source.mtime_ns): source for source in known}
    return tuple(_described(role, path, earlier) for role, path in files)


def file_hash(path: Path) -> str:
    """The sha256 of a file, read in pieces."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the name and your permission.") from error


def _described(role: str, path: Path, earlier: dict[tuple[str, str, int, int], SourceFile]) -> SourceFile:
    try:
        stat = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Check the file.") from error
    found = earlier.get((role, str(path), stat.st_size, stat.st_mtime_ns))
    return found or SourceFile(
        role=role, path=str(path), sha256=file_hash(path), num_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns
    )
