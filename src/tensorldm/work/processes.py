"""What holds in every worker process: few threads, deaf to Ctrl-C, one job at a time, the model loaded once."""

import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from tensorldm.work.memory import give_memory_back

T = TypeVar("T")

THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ORDINAL: Final = "TENSORLDM_WORKER"
"""Environment variable with a worker's number, which decides its GPU."""
PR_SET_PDEATHSIG: Final = 1
"""Of Linux's prctl."""

_one_at_a_time = threading.Lock()
_kept: list[tuple[str, Any]] = []


def begin_worker(name: object, threads: int) -> None:
    """Make this process a worker; called once, before its first job."""
    if threading.current_thread() is threading.main_thread():  # a cluster inside the user's own process keeps Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches the whole terminal; the first process decides
    found = re.search(r"(\d+)$", str(name))
    os.environ[ORDINAL] = found.group(1) if found else "0"
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))  # read when the numerical libraries are loaded
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def end_with_parent() -> None:
    """Have this process asked to end (SIGTERM) when the one that started it is gone, however that went.

    A run whose study was killed would hold its GPU, and write beside the one that goes on. Linux alone can do it.
    """
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it went before that was heard of
        os.kill(os.getpid(), signal.SIGTERM)


def do_alone(task: Callable[[Any], T], job: Any, *, folder: Path | None = None) -> T:
    """One subject in memory at a time, however many threads a cluster's worker was given.

    ``folder`` is where the command was given: paths that the user typed are seen from there, not from where the
    worker was started.
    """
    with _one_at_a_time, nullcontext() if folder is None else chdir(folder):
        try:
            return task(job)
        finally:
            give_memory_back()


def once(key: str, make: Callable[[], T]) -> T:
    """What ``make`` gave for this key in this process; only the last one is kept, since models are large."""
    if not _kept or _kept[0][0] != key:
        _kept[:] = [(key, make())]
    value: T = _kept[0][1]
    return value


def let_go(key: str) -> None:
    """Free what ``once`` keeps under this key."""
    if _kept and _kept[0][0] == key:
        _kept.clear()


def gpu_of_worker(count: int) -> int:
    """Which of ``count`` visible GPUs this process uses: workers take them in turn by their numbers."""
    return int(os.environ.get(ORDINAL, "0")) % count


def threads_each(workers: int) -> int:
    """As the user said with OMP_NUM_THREADS; else the cores shared out, or the processes fight for them."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    return int(said) if said.isdigit() and int(said) > 0 else max(1, (os.cpu_count() or 1) // workers)


@contextmanager
def few_threads(threads: int) -> Iterator[None]:
    """Numerical libraries read these when a process starts: for processes that are started inside the block."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
