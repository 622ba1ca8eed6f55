"""A large file as several small ones, for a way that carries only small files: NAME.1of3, NAME.2of3, NAME.3of3.

The pieces are the file's bytes in order, their numbers padded, so that ``cat NAME.*of3 > NAME`` puts them together too.
"""

import re
from pathlib import Path

from tensorldm import bounded
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_bytes

PIECE = re.compile(r"\.(?P<number>\d+)of(?P<count>\d+)$")


def write_pieces(path: Path, content: bytes, *, largest: int) -> list[Path]:
    """The file itself where it is small enough, else its pieces; older ones of the same name are removed."""
    assert largest > 0, "a piece holds something"
    for old in (path, *_pieces(path)):
        old.unlink(missing_ok=True)
    count = max(1, -(-len(content) // largest))
    width = len(str(count))
    names = [path] if count == 1 else [path.with_name(f"{path.name}.{i:0{width}d}of{count}") for i in _counted(count)]
    for number, name in enumerate(names):
        write_bytes(name, content[number * largest : (number + 1) * largest])
    return names


def read_pieces(path: Path) -> bytes:
    """The content of a file that is there whole or in pieces; a missing piece is named."""
    if path.is_file():
        return _read(path)
    found = {number: piece for piece in _pieces(path) for number in [_number(piece)]}
    if not found:
        raise DataError(f"{path}: neither the file nor pieces of it ({path.name}.1of3) are there. Carry it again.")
    counts = {_count(piece) for piece in found.values()}
    if len(counts) > 1 or len(found) != len(_pieces(path)):
        raise DataError(f"{path}: pieces of several exports lie side by side. Empty the folder and carry it again.")
    missing = [number for number in _counted(counts.pop()) if number not in found]
    if missing:
        raise DataError(f"{path}: piece {missing[0]} is missing, {len(found)} are there. Carry it again.")
    return b"".join(_read(found[number]) for number in sorted(found))


def _counted(count: int) -> range:
    return range(1, count + 1)


def _pieces(path: Path) -> list[Path]:
    return [each for each in path.parent.glob(f"{path.name}.*of*") if PIECE.search(each.name)]


def _number(piece: Path) -> int:
    return _matched(piece, "number")


def _count(piece: Path) -> int:
    return _matched(piece, "count")


def _matched(piece: Path, part: str) -> int:
    match = PIECE.search(piece.name)
    assert match is not None, "looked for by this pattern"
    return int(match[part])


def _read(path: Path) -> bytes:
    try:
        return bounded.read_bytes(path, limit=bounded.machine_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Carry it again.") from error
