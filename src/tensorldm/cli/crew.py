"""What every verb with many subjects offers alike: ``--workers``, ``--scheduler``, progress, a gentle end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any

import typer

Workers = Annotated[
    int, typer.Option(min=1, help="Processes on this machine; each needs memory for one scan and the model.")
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Instead: a Dask scheduler, such as tcp://node1:8786.")
]


class Bar:
    """Progress over all subjects."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task

    @property
    def console(self) -> Any:
        """Where to print above the bar."""
        return self._progress.console

    def advance(self, name: str) -> None:
        """One more is known."""
        self._progress.update(self._task, advance=1, description=name)

    def update(self, part: str) -> None:
        """What is being done now."""
        self._progress.update(self._task, description=part)

    def say(self, line: str) -> None:
        """A line that stays, above the bar."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_of(description: str, total: int | None) -> Iterator[Bar]:
    """A bar with a count and the time that is left, where the total is known; it leaves the screen at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, transient=True, console=Console()) as progress:
        yield Bar(progress, progress.add_task(description, total=total))


@contextmanager
def ended_gently() -> Iterator[list[int]]:
    """A batch system's SIGTERM counts as Ctrl-C, so that unfinished files are cleared away; gives the signals noted.

    An interrupt that Python meets in a destructor is swallowed there; then the block ends by it when its work is done.
    """
    asked: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGTERM, before)
    if asked:
        raise KeyboardInterrupt
