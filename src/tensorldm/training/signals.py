"""A cluster's time limit: SIGTERM (and SLURM's SIGUSR1) asks for a checkpoint, then a clean end.

Blocks may lie in each other: a study's around its runs', a run's around its stages'. All share the outermost one's
request, so that a signal which a stage hears too late to act on is there for whoever would begin the next.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


class StoppedError(Exception):
    """Somebody asked the run to end; what there is has been written down."""


@dataclass
class StopRequest:
    """Whether somebody asked to end; work looks at it where it can stop without losing anything."""

    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.name)


_heard: list[StopRequest] = []
"""The outermost block's, while there is one."""


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note SIGTERM and SIGUSR1 inside the block in place of dying; the handlers of before come back after it."""
    if _heard:
        yield _heard[0]
        return
    request = StopRequest()

    def note(number: int, _frame: FrameType | None) -> None:
        request.name = signal.Signals(number).name

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGUSR1)}
    _heard.append(request)
    try:
        yield request
    finally:
        _heard.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
