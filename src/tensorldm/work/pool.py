"""Several processes without Dask: started afresh, never more jobs under way than processes, lost ones tried again."""

import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from tensorldm.work.crew import Done, Lost
from tensorldm.work.processes import begin_worker, few_threads, threads_each

J = TypeVar("J")
R = TypeVar("R")

ENDED = "its process was ended from outside, most often for lack of memory. Run again with fewer --workers."


def perform_in_pool(
    task: Callable[[J], R], jobs: Sequence[J], *, workers: int
) -> Generator[Done[J, R] | Lost[J], None, None]:
    """Every job; when a process is lost, those under way are tried again one by one, to find out which one it is."""
    waiting, suspects = deque(jobs), list[J]()
    while waiting or suspects:
        if suspects:
            yield _alone(task, suspects.pop())
            continue
        with _pool(workers) as pool:
            under_way: dict[Future[R], J] = {}
            while (waiting or under_way) and not suspects:
                while waiting and len(under_way) < workers:
                    job = waiting.popleft()
                    under_way[pool.submit(task, job)] = job
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    job = under_way.pop(future)
                    try:
                        yield Done(job, future.result())
                    except BrokenProcessPool:
                        suspects += [job, *under_way.values()]
                        break


def _alone(task: Callable[[J], R], job: J) -> Done[J, R] | Lost[J]:
    with _pool(1) as pool:
        try:
            return Done(job, pool.submit(task, job).result())
        except BrokenProcessPool:
            return Lost(job, ENDED)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes started afresh (a fork of a threaded program may hang); none is left behind when we are stopped."""
    threads = threads_each(workers)
    context = multiprocessing.get_context("spawn")
    numbers: Any = context.Value("i", 0)
    with few_threads(threads):
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(numbers, threads))
        try:
            yield pool
        except BaseException:
            _end(pool)
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(numbers: Any, threads: int) -> None:
    with numbers.get_lock():
        number = numbers.value
        numbers.value += 1
    begin_worker(number, threads)


def _end(pool: ProcessPoolExecutor) -> None:
    """Nobody waits for subjects that will not be used; who holds the folder sweeps away what they had begun."""
    for process in list((pool._processes or {}).values()):
        process.kill()
