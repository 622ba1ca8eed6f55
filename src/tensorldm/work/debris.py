"""What a killed process leaves behind: hidden, half-written files and folders that nobody will ever finish.

Files appear by a rename, so a half is never taken for a whole; but it takes space. Sweep only while the output folder
is held (``work.lock``): then nobody else should be writing there, but to folders inside it that other runs hold, which
are left alone. A worker whose scheduler was lost may be, for a moment; so a folder is taken out of its hands by a
rename before it is emptied, and cannot appear half emptied.
"""

import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tensorldm.work.lock import INSIDE, is_held, names_held

UNFINISHED: Final = re.compile(r"\..*\.[0-9a-f]{8}\.part")
"""The names under which ``imaging.atomic`` and the outputs of a reconstruction are written before they are renamed."""


def sweep(out: Path) -> int:
    """Remove what is unfinished in ``out`` and, of ``out`` as a whole, beside it; gives how many there were."""
    found = list(_unfinished(out))
    for path in found:
        if path.is_dir():
            _remove(path)
        else:
            path.unlink(missing_ok=True)
    return len(found)


def _remove(folder: Path) -> None:
    name = folder.name.rsplit(".", 2)[0]  # kept, so that a sweep that is cut short is finished by the next one
    mine = folder.with_name(f"{name}.{secrets.token_hex(4)}.part")
    with suppress(OSError):  # its owner was faster: it has appeared, whole, or is gone
        folder.rename(mine)
        shutil.rmtree(mine, ignore_errors=True)


def _unfinished(out: Path) -> Iterator[Path]:
    absolute = out.absolute()
    parent = absolute.parent
    while not parent.exists():
        parent = parent.parent
    own = re.compile(rf"\.{re.escape(absolute.name)}\.[0-9a-f]{{8}}\.part")
    yield from (path for path in parent.glob(".*.part") if own.fullmatch(path.name))
    if absolute.is_dir():
        yield from _below(absolute)


def _below(folder: Path) -> Iterator[Path]:
    held = names_held(folder)
    for path in folder.iterdir():
        if path.name in held or path.name.startswith(tuple(f".{name}." for name in held)):
            continue  # another run writes to a folder inside this one
        if UNFINISHED.fullmatch(path.name):
            yield path
        elif path.is_dir() and not path.is_symlink() and not is_held(path / INSIDE):
            yield from _below(path)
