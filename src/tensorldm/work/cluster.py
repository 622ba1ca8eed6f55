"""Workers of a Dask cluster: a local one that lives as long as the call, or one that runs already.

Jobs are handed out a few at a time. A worker that dies is replaced and its subject done again by another; a subject
that takes one worker after another is given up. Tasks travel as Dask sends them: a scheduler must be one's own.
"""

import logging
import os
import secrets
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client, LocalCluster, Security, WorkerPlugin, as_completed
from distributed.scheduler import KilledWorker

from tensorldm import __version__
from tensorldm.errors import ToolError
from tensorldm.work.crew import WORKERS_AHEAD, Crew, Done, Lost, Tell
from tensorldm.work.processes import begin_worker, do_alone, few_threads, threads_each

J = TypeVar("J")
R = TypeVar("R")

CONNECT_SECONDS = 20
WAIT_FOR_WORKERS_SECONDS = 120
"""A cluster's queue may take long to start its first worker; after this the user is told that there is none."""
LOUD = ("distributed", "tornado")
ALLOWED_FAILURES = 1
"""Workers that a job may lose before it is suspected; a second one is no accident."""
KILLED = (
    "its worker was ended from outside, several times, most often for lack of memory. "
    "Run again with fewer --workers, or with more memory for each."
)


class Beginning(WorkerPlugin):  # type: ignore[misc]  # Dask has no types
    """Runs in every worker when it starts, those that replace lost ones too."""

    name = "tensorldm"

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def setup(self, worker: Any) -> None:
        """Threads, Ctrl-C and GPU of one worker process."""
        begin_worker(worker.name, self.threads)


def perform_on_cluster(
    task: Callable[[J], R], jobs: Sequence[J], *, crew: Crew, tell: Tell
) -> Generator[Done[J, R] | Lost[J], None, None]:
    """Every job, as they end."""
    with ExitStack() as stack:
        stack.enter_context(_quiet())
        client = stack.enter_context(_local(crew, len(jobs)) if crew.scheduler is None else _existing(crew.scheduler))
        if find_spec("bokeh") is not None and client.dashboard_link:
            tell(f"dashboard: {client.dashboard_link}")
        workers = len(client.scheduler_info(n_workers=-1)["workers"])
        try:
            yield from _handed_out(client, task, jobs, ahead=WORKERS_AHEAD * max(1, workers))
        except (CancelledError, OSError) as error:
            raise ToolError(
                f"{crew.scheduler or 'the local cluster'}: the scheduler went away in the middle of the work. "
                "What was finished is kept; start the scheduler and give the same command again."
            ) from error


def _handed_out(
    client: Client, task: Callable[[J], R], jobs: Sequence[J], *, ahead: int
) -> Generator[Done[J, R] | Lost[J], None, None]:
    run, waiting, under_way, suspects = secrets.token_hex(4), iter(enumerate(jobs)), dict[Any, J](), list[J]()

    def submit() -> Iterator[Any]:
        for index, job in waiting:
            future = client.submit(do_alone, task, job, folder=Path.cwd(), key=f"tensorldm-{run}-{index}", pure=False)
            under_way[future] = job
            yield future
            return

    ended = as_completed([future for _ in range(ahead) for future in submit()], loop=client.loop)
    for future in ended:
        job = under_way.pop(future)
        try:
            yield Done(job, future.result())
        except KilledWorker:
            suspects.append(job)
        future.release()
        ended.update(submit())
    for job in suspects:
        yield _alone(client, task, job)


def _alone(client: Client, task: Callable[[J], R], job: J) -> Done[J, R] | Lost[J]:
    """A worker takes with it the jobs that wait for it; one by one, they show which of them it is."""
    try:
        return Done(job, client.submit(do_alone, task, job, folder=Path.cwd(), pure=False).result())
    except KilledWorker:
        return Lost(job, KILLED)


@contextmanager
def _quiet() -> Iterator[None]:
    """Dask tells of every connection; a lost worker or scheduler is told as one sentence, by us."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in LOUD]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@contextmanager
def _local(crew: Crew, jobs: int) -> Iterator[Client]:
    workers = min(crew.workers, jobs)
    threads = threads_each(workers)
    with ExitStack() as stack:
        with few_threads(threads):
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                security=_security(),
                silence_logs=logging.CRITICAL,
                scheduler_kwargs={"allowed_failures": ALLOWED_FAILURES},
            )
        stack.callback(partial(_close, cluster))
        client = stack.enter_context(Client(cluster))
        client.register_plugin(Beginning(threads))
        stack.callback(partial(_end_workers, cluster))
        yield client


@contextmanager
def _existing(address: str) -> Iterator[Client]:
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ToolError(
            f"--scheduler {address}: no Dask scheduler answers there ({error}). Check the address that "
            "'dask scheduler' prints, and that its workers run."
        ) from error
    with client:
        _require_workers(client, address)
        _require_same_package(client, address)
        _require_same_paths(client, address)
        client.register_plugin(Beginning(threads_each(1)))
        yield client


def _require_workers(client: Client, address: str) -> None:
    end = time.monotonic() + WAIT_FOR_WORKERS_SECONDS
    while not client.scheduler_info(n_workers=-1)["workers"]:
        if time.monotonic() > end:
            raise ToolError(
                f"--scheduler {address}: the scheduler has no worker, after {WAIT_FOR_WORKERS_SECONDS} seconds. "
                "Start workers with 'dask worker ADDRESS --nthreads 1', then give the same command again."
            )
        time.sleep(0.2)


def _require_same_package(client: Client, address: str) -> None:
    """Another version gives other files; a worker without the package gives none."""
    for worker, version in client.run(_version, on_error="return").items():
        if isinstance(version, Exception):
            raise ToolError(
                f"--scheduler {address}: the worker {worker} cannot load tensorldm ({version}). "
                "Install it where 'dask worker' is started."
            )
        if version != __version__:
            raise ToolError(
                f"--scheduler {address}: the worker {worker} has tensorldm {version}, this program is {__version__}. "
                "Install the same version on every machine."
            )


def _require_same_paths(client: Client, address: str) -> None:
    """Workers read and write the user's own files."""
    for worker, there in client.run(os.path.isdir, str(Path.cwd())).items():
        if not there:
            raise ToolError(
                f"--scheduler {address}: the worker {worker} does not see the folder {Path.cwd()}. "
                "Work on a disk that all machines see under the same name."
            )


def _version() -> str:
    return __version__


def _security() -> Security | None:
    """Others on this machine could send work to an open port: encrypted and private where that can be had."""
    return Security.temporary() if find_spec("cryptography") is not None else None


def _close(cluster: LocalCluster) -> None:
    """What was worked on is done by now, and a worker that died while it was being replaced takes nothing from it."""
    with suppress(AssertionError):  # Dask waits for the end of a process that it has not started
        cluster.close()


def _end_workers(cluster: LocalCluster) -> None:
    """At once: nobody waits for subjects that will not be used, and none is under way when all are done."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for nanny in cluster.workers.values():
            process = getattr(getattr(nanny, "process", None), "process", None)
            if process is not None:
                nanny.auto_restart = False
                with suppress(ValueError):  # it has just ended by itself, and Dask has closed its hand on it
                    process.kill()
