"""A cluster's time limit: SIGTERM (and SLURM's SIGUSR1) asks for a checkpoint, then a clean end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Whether somebody asked the run to end; the loop looks at it between steps."""

    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.name)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Note SIGTERM and SIGUSR1 inside the block in place of dying; the handlers of before come back after it."""
    request = StopRequest()

    def note(number: int, _frame: FrameType | None) -> None:
        request.name = signal.Signals(number).name

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
