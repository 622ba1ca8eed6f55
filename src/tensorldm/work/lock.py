"""One run per output folder: a second one is refused with a sentence, not allowed to mix its files with the first's.

The lock is the system's own and goes with the process that holds it, however that process ends: a power cut or
``kill -9`` leaves at most an empty file that nobody holds.
"""

import errno
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from tensorldm.errors import DataError

NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS}
"""What file systems without locks answer."""
SUFFIX = ".lock"
INSIDE = f".this-folder{SUFFIX}"
"""No output folder's own name, as beside it."""
TRIES = 3
"""To open the lock, where the folder that it lies in goes away."""


@contextmanager
def holding(out: Path) -> Iterator[None]:
    """Hold the output folder ``out``, which need not exist yet, or refuse because another run does."""
    missing = [parent for parent in out.absolute().parents if not parent.exists()]
    path, stream = _acquire(out)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still held, so that nobody's later lock is removed
        stream.close()
        with suppress(OSError):  # something was written there: it stays
            for parent in missing:
                parent.rmdir()


def lock_path(out: Path) -> Path:
    """Beside the folder, which then stays clean and may appear by one rename; inside it where it is a mount point.

    Only permission decides between the two, so that the runs of one person always look at the same place. The folder
    that ``out`` will lie in is made first: else its place would be another one as soon as the first run makes it.
    """
    absolute = out.absolute()
    absolute.parent.mkdir(parents=True, exist_ok=True)
    if os.access(absolute.parent, os.W_OK) and not (absolute.exists() and absolute.is_mount()):
        return absolute.parent / f".{absolute.name or 'tensorldm'}{SUFFIX}"
    return absolute / INSIDE


def names_held(folder: Path) -> list[str]:
    """What runs that are alive hold in a folder, by name."""
    return [lock.name[1 : -len(SUFFIX)] for lock in folder.glob(f".*{SUFFIX}") if is_held(lock)]


def is_held(path: Path) -> bool:
    """Whether a run that is alive holds this lock; nobody does where there is none."""
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back at once, by closing
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _acquire(out: Path) -> tuple[Path, BinaryIO]:
    tries = TRIES
    while True:
        try:
            path = lock_path(out)
            stream = path.open("a+b")
        except OSError as error:
            tries -= 1
            if isinstance(error, FileNotFoundError) and tries:
                continue  # a run that ended may have removed the empty folder between our two steps
            raise DataError(
                f"{out}: cannot be written ({error.strerror}). Choose a folder that you may write to."
            ) from error
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(stream)
            stream.close()
            raise DataError(
                f"{out}: another run is writing there{holder}. Wait until it has ended, or choose another folder."
            ) from error
        except OSError as error:  # a file system without locks: better one unguarded run than none
            if error.errno not in NO_LOCKS:
                raise
        if _is_still(path, stream):
            stream.truncate(0)
            stream.write(_signature())
            stream.flush()
            return path, stream
        stream.close()  # its holder removed the file between our two steps: the next try makes a new one


def _is_still(path: Path, stream: BinaryIO) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(stream.fileno()))
    return False


def _signature() -> bytes:
    known = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return json.dumps(known).encode()


def _holder(stream: BinaryIO) -> str:
    """What the holder wrote about itself, as far as it can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        stream.seek(0)
        known = json.loads(stream.read(1000))
        return f" (process {int(known['process'])} on {known['host']}, since {known['since']})"
    return ""
