"""Who does the work: this process, several here, or the workers of a Dask cluster. The work does not know.

A task is a function of one job that can travel to another process: a module's own function, ``functools.partial`` of
one, or a frozen dataclass with ``__call__``. It answers for its own failures; what a crew adds is the loss of a worker.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Generic, TypeVar

from tensorldm.errors import ConfigError, ToolError

J = TypeVar("J")
R = TypeVar("R")
Tell = Callable[[str], None]

WORKERS_AHEAD = 2
"""Jobs handed out per worker: the next is ready when one ends, and ten thousand do not travel at once."""


@dataclass(frozen=True)
class Crew:
    """As the user asked for it: ``--workers N`` or ``--scheduler ADDRESS``."""

    workers: int = 1
    scheduler: str | None = None

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ConfigError(f"--workers is {self.workers}; give a number of at least 1.")
        if self.scheduler is not None and self.workers > 1:
            raise ConfigError(
                f"--workers {self.workers} and --scheduler {self.scheduler}: give one of the two. "
                "A cluster has the workers that it was started with."
            )
        if self.scheduler is not None and not has_dask():
            raise ToolError(
                "--scheduler needs Dask, which is not installed. Run: pip install 'tensorldm[cluster]', "
                "or give --workers instead."
            )

    def stays_here(self, jobs: int) -> bool:
        """Whether this process does that many jobs itself."""
        return self.scheduler is None and (self.workers == 1 or jobs < 2)


ALONE = Crew()


@dataclass(frozen=True, eq=False)
class Done(Generic[J, R]):
    """A job and what came of it."""

    job: J
    value: R


@dataclass(frozen=True, eq=False)
class Lost(Generic[J]):
    """A job whose worker was ended from outside, again and again."""

    job: J
    reason: str


def perform(
    task: Callable[[J], R], jobs: Sequence[J], *, crew: Crew, tell: Tell
) -> Generator[Done[J, R] | Lost[J], None, None]:
    """Do every job and give each as it ends: in order by one worker, as they come from several.

    ``tell`` hears what a user should know about the crew itself. Close the iterator to stop early.
    """
    if crew.stays_here(len(jobs)):
        for job in jobs:
            yield Done(job, task(job))
        return
    if not jobs:
        return
    if crew.scheduler is None and not has_dask():
        from tensorldm.work.pool import perform_in_pool

        workers = min(crew.workers, len(jobs))
        with closing(perform_in_pool(task, jobs, workers=workers)) as done:
            yield from done
        return
    from tensorldm.work.cluster import perform_on_cluster

    with closing(perform_on_cluster(task, jobs, crew=crew, tell=tell)) as done:
        yield from done


def silent(_line: str) -> None:
    """For those who want to hear nothing."""


def has_dask() -> bool:
    """Whether Dask is installed; it is an extra."""
    return find_spec("distributed") is not None
