"""What a stranger's file may ask for, settled before memory is: small texts, JSON, gzip, and how much fits at all.

A few hundred bytes can claim forty gigabytes. Every reader of files from elsewhere goes through here or through
``imaging.header``. A file that asks for too much is a ``ValueError`` or ``OSError``, which the reader tells as a
sentence about its file, with its own advice.
"""

import gzip
import json
import os
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final

MIB: Final = 2**20
LARGEST_TEXT_BYTES: Final = 16 * MIB
"""A table of ten thousand gradients takes 1 MiB."""
LARGEST_INDEX_BYTES: Final = 512 * MIB
"""Of a store: ten thousand subjects at some ten KiB each, and room."""
PIECE_BYTES: Final = 4 * MIB
CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""What a container or a batch job may use, in the two ways that Linux has told it."""


def read_bytes(path: Path, *, limit: int = LARGEST_TEXT_BYTES) -> bytes:
    """A small file whole; reading stops soon after the limit, so that endless files (pipes, devices) end too."""
    with path.open("rb") as stream:
        return _read(stream, limit)


def read_text(path: Path, *, limit: int = LARGEST_TEXT_BYTES) -> str:
    """A small UTF-8 text."""
    return read_bytes(path, limit=limit).decode("utf-8")


def read_json(path: Path, *, limit: int = LARGEST_TEXT_BYTES) -> Any:
    """The value of a small JSON file."""
    return parse_json(read_bytes(path, limit=limit))


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text; one nested beyond reason is as invalid as one with a comma missing."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def unpack_gzip(path: Path, *, limit: int) -> bytes:
    """The content of a gzip; one that unpacks to more than the limit is refused without being unpacked further."""
    with gzip.open(path, "rb") as stream:
        return _read(stream, limit)


def machine_bytes() -> int:
    """Memory that this process may use at most: the machine's, or what its container allows."""
    try:
        amounts = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):  # no POSIX system: nothing is known, nothing refused
        return 2**63
    for path in CGROUP_LIMITS:
        try:
            amounts.append(int(path.read_text(encoding="ascii")))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(amount for amount in amounts if amount > 0)


def _read(stream: BufferedIOBase, limit: int) -> bytes:
    """In pieces: a stream that is asked for a gigabyte takes one, however little it holds."""
    pieces, length = [], 0
    while piece := stream.read(PIECE_BYTES):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            raise ValueError(f"more than {limit / MIB:.0f} MiB")
    return b"".join(pieces)
