"""What the C library does with memory that a CPU frees: kept for the next array, or given back to the system.

A network's arrays come and go by the thousand, each tens of megabytes. By default glibc asks the system for each of
them and gives it back, and the system fills every page with zeros anew: a tenth of a reconstruction's time, and more
where several work beside each other on a virtual machine. Only where things lie changes, no number. Other systems'
libraries have no such knobs.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_MMAP_MAX: Final = -4
"""Of glibc's mallopt."""
KEPT: Final = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1}
"""No array has a mapping of its own, and the heap does not shrink."""
USUAL: Final = {M_MMAP_MAX: 65_536, M_MMAP_THRESHOLD: 32 * 2**20, M_TRIM_THRESHOLD: 64 * 2**20}
"""Where glibc's own thresholds go when large arrays have been freed."""


@contextmanager
def freed_memory_kept(device: str) -> Iterator[None]:
    """Inside the block memory that work on a "cpu" frees serves the next array; afterwards the system has it again."""
    tune = _tuner() if device == "cpu" else None
    if tune is None:
        yield
        return
    for option, value in KEPT.items():
        tune(option, value)
    try:
        yield
    finally:
        for option, value in USUAL.items():
            tune(option, value)
        give_memory_back()


def give_memory_back() -> None:
    """What was freed goes back to the system; the allocator would keep it, and a night's run would grow."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _tuner() -> Callable[[int, int], int] | None:
    """glibc's mallopt; None where there is another C library."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  musl has a mallopt that does nothing
        tune: Callable[[int, int], int] = library.mallopt
    except (OSError, AttributeError, TypeError):
        return None
    return tune
