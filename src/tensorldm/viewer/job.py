"""One reconstruction in a process of its own: it can be watched, and stopped at any moment without a trace.

A thread would go on computing after "cancel", and keep its memory afterwards.
"""

import multiprocessing
import signal
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from tensorldm.errors import TensorldmError
from tensorldm.imaging.tensor_files import DEFAULT_CONVENTION
from tensorldm.reconstruct.choice import choose, pick_device
from tensorldm.reconstruct.files import Describe, Draw, Failed, Request
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.many import reconstruct_files
from tensorldm.reconstruct.settings import Settings

State = Literal["running", "done", "failed", "cancelled"]
SECONDS_TO_END = 3.0


@dataclass(frozen=True)
class Task:
    """What is to be done; it travels to another process."""

    scan: InputFiles
    out: Path
    model: Path | None = None
    method: str | None = None
    device: str = "auto"
    settings: Settings = field(default_factory=Settings)
    draw: Draw | None = None
    describe: Describe | None = None

    def request(self) -> Request:
        """As ``reconstruct_files`` takes it."""
        choice = choose(model=self.model, method=self.method)
        device = pick_device(self.device)
        return Request(choice, self.settings, device, self.out, DEFAULT_CONVENTION, self.draw, self.describe)


class Job:
    """A reconstruction under way."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.parts: list[tuple[str, float]] = []
        """What was begun, and after how many seconds."""
        self.lines: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        self.message = ""
        self.state: State = "running"
        self._start = time.monotonic()
        self._end: float | None = None
        self._news, theirs = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._process: BaseProcess = multiprocessing.get_context("spawn").Process(
            target=work, args=(task, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def seconds(self) -> float:
        """Since it began, until it ended."""
        return (self._end or time.monotonic()) - self._start

    def look(self) -> State:
        """Hear what the process has said since the last look."""
        try:
            while self.state == "running" and self._news.poll():
                self._hear(*self._news.recv())
        except (EOFError, OSError):
            self._process.join(SECONDS_TO_END)
            self._finish(
                "failed", "The reconstruction broke off. The terminal says why; out of memory, it says nothing."
            )
        return self.state

    def cancel(self) -> None:
        """Stop it; nothing of it stays but the temporary folder's content, which its owner removes."""
        if self.look() == "running":
            self._finish("cancelled", "")
        self._process.terminate()
        self._process.join(SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _hear(self, kind: str, news: Any) -> None:
        if kind == "part":
            self.parts.append((str(news), self.seconds))
        elif kind == "done":
            self.lines, self.warnings = news
            self._finish("done", "")
        else:
            self._finish("failed", str(news))

    def _finish(self, state: State, message: str) -> None:
        self.state, self.message = state, message
        self._end = time.monotonic()


def work(task: Task, news: Connection) -> None:
    """The other process: do the task, tell how it goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the server, which ends this process
    try:
        for outcome in reconstruct_files([task.scan], task.request(), tell=lambda part: news.send(("part", part))):
            if isinstance(outcome, Failed):
                news.send(("failed", str(outcome.error)))
            else:
                news.send(("done", (tuple(outcome.summary.lines()), outcome.summary.warnings)))
    except TensorldmError as error:
        news.send(("failed", str(error)))
    except BrokenPipeError:
        return  # whoever wanted the result has gone
