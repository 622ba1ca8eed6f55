"""Several processes without Dask: started afresh, never more jobs under way than processes, lost ones tried again.

A pool may serve its workers (``work.serving``): what they all need and only this process holds is asked for here.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, TypeVar

from tensorldm.work.crew import Done, Lost
from tensorldm.work.processes import begin_worker, do_alone, few_threads, threads_each
from tensorldm.work.serving import Call, Desk, Serve, sit_down

J = TypeVar("J")
R = TypeVar("R")

ENDED = (
    "its process was ended from outside, most often for lack of memory. Run again with fewer --workers, or, beside a "
    "GPU, with a smaller TENSORLDM_HELPERS."
)


def perform_in_pool(
    task: Callable[[J], R],
    jobs: Sequence[J],
    *,
    workers: int,
    serve: Serve | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Generator[Done[J, R] | Lost[J], None, None]:
    """Every job; when a process is lost, those under way are tried again one by one, to find out which one it is.

    ``serve`` answers what workers ``ask``, here, in the thread that takes the jobs' ends from this generator;
    ``meanwhile`` is called here once, when the first jobs are handed out and the workers are still starting.
    """
    waiting = deque(jobs)
    while waiting:
        suspects = list[J]()
        with closing(_work(task, waiting, workers=workers, serve=serve, meanwhile=meanwhile)) as ended:
            for each in ended:
                if isinstance(each, Lost):
                    suspects.append(each.job)
                else:
                    yield each
        for job in suspects:
            with closing(_work(task, deque([job]), workers=1, serve=serve, meanwhile=lambda: None)) as ended:
                yield from ended


def _work(
    task: Callable[[J], R],
    waiting: "deque[J]",
    *,
    workers: int,
    serve: Serve | None,
    meanwhile: Callable[[], None],
) -> Generator[Done[J, R] | Lost[J], None, None]:
    """Take from ``waiting`` until nothing is left or a process is lost; those under way are then lost too."""
    events: SimpleQueue[Any] = SimpleQueue()
    under_way: dict[Future[R], J] = {}
    with ExitStack() as stack:
        desk = None if serve is None else stack.enter_context(Desk(serve, workers, _started_afresh(), events))
        pool = stack.enter_context(_pool(workers, () if desk is None else desk.ends))

        def hand_out() -> None:
            with suppress(BrokenProcessPool):  # those under way tell of it
                while waiting and len(under_way) < workers:
                    with _deaf_to_ctrl_c():
                        future = pool.submit(do_alone, task, waiting[0])
                    under_way[future] = waiting.popleft()
                    future.add_done_callback(events.put)

        hand_out()
        meanwhile()
        while under_way:
            event = events.get()
            if isinstance(event, Call):
                assert desk is not None, "nobody calls a pool that does not serve"
                desk.answer(event)
                continue
            job = under_way.pop(event)
            try:
                value = event.result()
            except BrokenProcessPool:
                yield from (Lost(each, ENDED) for each in (job, *under_way.values()))
                return
            hand_out()  # before the caller has the end: nobody is idle while it is told
            yield Done(job, value)


def _started_afresh() -> Any:
    """A fork of a threaded program may hang."""
    return multiprocessing.get_context("spawn")


@contextmanager
def _pool(workers: int, ends: Sequence[Connection]) -> Iterator[ProcessPoolExecutor]:
    """Processes of which none is left behind when we are stopped."""
    threads, context = threads_each(workers), _started_afresh()
    numbers: Any = context.Value("i", 0)
    with few_threads(threads):
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(numbers, threads, ends))
        try:
            yield pool
        finally:
            _end(pool)
            pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started inside never hear the terminal's Ctrl-C; this one hears it when the block ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(numbers: Any, threads: int, ends: Sequence[Connection]) -> None:
    with numbers.get_lock():
        number = numbers.value
        numbers.value += 1
    begin_worker(number, threads)
    if ends:
        sit_down(ends, number)
    threading.Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    """A worker whose first process was killed would wait for ever, or go on writing for nobody."""
    first = multiprocessing.parent_process()
    if first is not None:
        wait([first.sentinel])
        os._exit(1)


def _end(pool: ProcessPoolExecutor) -> None:
    """At once: nothing is under way when all are done, and a worker takes seconds to leave by itself.

    Nobody waits for subjects that will not be used; who holds the folder sweeps away what was begun of them.
    """
    for process in list((pool._processes or {}).values()):
        process.kill()
