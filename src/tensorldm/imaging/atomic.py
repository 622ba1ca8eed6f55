"""A file appears whole or not at all: written beside its name, flushed to the disk, then renamed."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tensorldm.errors import DataError


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Open a stream whose bytes become ``path`` when the block ends well, and vanish when it does not.

    Missing folders are made. Only writing belongs in the block: an ``OSError`` out of it (disk full, no such
    folder, no permission) is told as a ``DataError`` about ``path``.
    """
    # Dots first: globs and dataset crawlers pass over it. In the same folder: rename never crosses file systems.
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path}: a device or pipe, which a file would replace. Give another name.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("xb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(
            f"{path}: cannot be written ({reason}). Free space there, or choose a folder that you may write to."
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes whole or not at all."""
    with writing(path) as stream:
        stream.write(content)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON that a person can read, whole or not at all; NaN and infinity, which JSON lacks, are refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut; systems that cannot open a folder do without."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
