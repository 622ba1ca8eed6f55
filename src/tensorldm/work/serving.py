"""Something that only the first process holds and all its workers use, such as a model on a GPU.

A worker sends a message and waits for the answer. The first process answers one message after the other, in its own
thread, so that Ctrl-C ends it like any other work; receiving and sending go on beside it. Arrays travel as their bytes
through sockets: shared memory is 64 MB in many containers, and whoever pickles an array holds up all other threads.
"""

import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from queue import SimpleQueue
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray

from tensorldm.errors import TensorldmError


@dataclass(frozen=True, eq=False)
class Message:
    """A few words, and arrays of any size."""

    note: Any
    arrays: tuple[Shaped[ndarray, "..."], ...] = ()


Serve = Callable[[Message], Message]
"""What the first process does with a message; a ``TensorldmError`` out of it is raised where the message came from."""


class ServingError(Exception):
    """A bug in what the first process did for a worker: its kind, and the traceback there."""

    def __init__(self, kind: str, details: str) -> None:
        super().__init__(kind, details)
        self.kind = kind
        self.add_note(f"In the process that answers:\n{details}")


@dataclass(frozen=True, eq=False)
class Call:
    """A message that waits for its answer."""

    message: Message
    connection: Connection


@dataclass(eq=False)
class Desk:
    """Where calls come in, one connection a worker; use it as a context.

    Inside the block every call appears in ``calls``; after it nobody waits. Close the workers before it.
    """

    serve: Serve
    workers: int
    context: BaseContext
    calls: "SimpleQueue[Any]"
    ends: Sequence[Connection] = ()
    """For the workers: each takes the one of its number with ``sit_down``."""
    _mine: Sequence[Connection] = ()
    _threads: list[threading.Thread] = field(default_factory=list)
    _answers: "SimpleQueue[tuple[Connection, Message] | None]" = field(default_factory=SimpleQueue)

    def __enter__(self) -> "Desk":
        pairs = [self.context.Pipe() for _ in range(self.workers)]
        self._mine, self.ends = [mine for mine, _ in pairs], [end for _, end in pairs]
        self._threads = [threading.Thread(target=self._receive, args=(mine,), daemon=True) for mine in self._mine]
        self._threads.append(threading.Thread(target=self._send, daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for end in self.ends:
            end.close()  # the last copies: who still receives or sends hears of it
        self._answers.put(None)
        for thread in self._threads:
            thread.join()
        for connection in self._mine:
            connection.close()

    def answer(self, call: Call) -> None:
        """Do what a call asks for; the answer, or what went wrong, goes back beside the next call."""
        try:
            answer = self.serve(call.message)
        except TensorldmError as error:
            answer = Message(error)
        except Exception as error:
            answer = Message(ServingError(type(error).__name__, "".join(traceback.format_exception(error))))
        self._answers.put((call.connection, answer))

    def _receive(self, connection: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                self.calls.put(Call(receive(connection), connection))

    def _send(self) -> None:
        while (answer := self._answers.get()) is not None:
            with suppress(OSError):  # a worker that was lost is not waiting
                send(*answer)


_connection: list[Connection] = []


def sit_down(ends: Sequence[Connection], number: int) -> None:
    """Take the worker's own connection; a copy of another's would keep it open when that worker is gone."""
    _connection[:] = [ends[number]]
    for other, end in enumerate(ends):
        if other != number:
            end.close()


def ask(message: Message) -> Message:
    """What the first process answers; called in a worker of a pool that serves."""
    (connection,) = _connection
    send(connection, message)
    answer = receive(connection)
    if isinstance(answer.note, Exception):
        raise answer.note
    return answer


def send(connection: Connection, message: Message) -> None:
    """A message, its arrays as they lie in memory."""
    arrays = [np.ascontiguousarray(array) for array in message.arrays]
    connection.send((message.note, [(array.dtype.str, array.shape) for array in arrays]))
    for array in arrays:
        connection.send_bytes(array.reshape(-1).view(np.uint8).data)


def receive(connection: Connection) -> Message:
    """The other end of ``send``; the arrays are the caller's own."""
    note, described = connection.recv()
    arrays = [np.empty(shape, dtype) for dtype, shape in described]
    for array in arrays:
        connection.recv_bytes_into(array.reshape(-1).view(np.uint8).data)
    return Message(note, tuple(arrays))
