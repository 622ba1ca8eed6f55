"""Runs of a study at the same time, each in a process of its own.

On several GPUs, to which they are dealt in turn; or on one that a single run leaves idle most of the time, because its
kernels are shorter than it takes to launch them. Minutes are of the clock, so runs that share a GPU have fewer
steps in them than runs alone: compare those that had as many beside them. The study's log says how many that were.
"""

import multiprocessing as mp
import os
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console

from tensorldm.experiments.preparing_runs import check_runs
from tensorldm.experiments.recipes import RUNS, TrainingConfig, run_folder
from tensorldm.experiments.training import Ended, Say, comes_after, do_run
from tensorldm.experiments.training_log import TRAINED, TrainingLog, steps_of
from tensorldm.reconstruct.overlap import cores_here
from tensorldm.training.signals import stop_on_signals
from tensorldm.work.folder import writing_to
from tensorldm.work.processes import end_with_parent

LOOK_SECONDS: Final = 0.2
TELL_SECONDS: Final = 30.0
GPUS: Final = "CUDA_VISIBLE_DEVICES"
Note = tuple[str, str, dict[str, Any]]


@dataclass
class Collected:
    """What a run's process notes, for the one process that writes the study's log."""

    lines: list[Note] = field(default_factory=list)

    def add(self, run: str, event: str, **values: Any) -> None:
        """One more line."""
        self.lines.append((run, event, values))


@dataclass(frozen=True)
class Place:
    """Where a run works, and its share of the cores."""

    accelerator: str
    gpu: str | None
    threads: int


@dataclass(frozen=True, eq=False)
class Job:
    """A run at work."""

    process: BaseProcess
    answer: Connection
    seat: int
    company: list[int] = field(default_factory=list)
    """How many runs were at work, itself among them, each time that somebody looked."""

    @property
    def at_once(self) -> int:
        """How many that was for most of the time: fewer than were allowed where there was no more to do."""
        return round(statistics.median(self.company)) if self.company else 1


def train_side_by_side(
    training: TrainingConfig,
    out: Path,
    *,
    seed: int,
    at_once: int,
    only: Sequence[str] = (),
    accelerator: str = "auto",
    say: Say,
) -> list[Ended]:
    """As ``train_runs``, with up to ``at_once`` runs at work; asked to stop, all of them save their state."""
    check_runs(training, out, seed=seed, only=only)
    names, log = training.needed(only), TrainingLog.of(out)
    waiting, ended, jobs = list(names), dict[str, Ended](), dict[str, Job]()
    told, asked = time.monotonic(), False
    with writing_to(out / RUNS), stop_on_signals() as request:
        try:
            while jobs or (waiting and not request):
                _leave_out(waiting, ended, training, say=say)
                for name in _startable(waiting, ended, training)[: 0 if request else at_once - len(jobs)]:
                    waiting.remove(name)
                    seat = min(set(range(at_once)) - {job.seat for job in jobs.values()})
                    jobs[name] = _begin(
                        training, name, out, seed=seed, seat=seat, place=_place(accelerator, seat, at_once)
                    )
                    say(f"{name}: {training.minutes(name):.3g} minutes, begun")
                time.sleep(LOOK_SECONDS)
                for job in jobs.values():
                    job.company.append(len(jobs))
                for name in [name for name, job in jobs.items() if job.answer.poll() or not job.process.is_alive()]:
                    ended[name] = _finish(name, jobs.pop(name), log)
                    say(ended[name].describe())
                if request and not asked:
                    asked = True
                    _ask_to_stop(jobs)
                if time.monotonic() - told > TELL_SECONDS:
                    told = time.monotonic()
                    say("; ".join(_progress(out, name) for name in jobs))
        except BaseException:  # Ctrl-C: let them save what they have
            _ask_to_stop(jobs)
            raise
        finally:
            for job in jobs.values():
                job.process.join()
    return [ended.get(name, Ended.not_begun(name)) for name in names]


def _leave_out(waiting: list[str], ended: dict[str, Ended], training: TrainingConfig, *, say: Say) -> None:
    for name in list(waiting):
        before = comes_after(name, training)
        if before in ended and ended[before].end != TRAINED:
            waiting.remove(name)
            ended[name] = Ended.left_out(name, before)
            say(ended[name].describe())


def _startable(waiting: Sequence[str], ended: dict[str, Ended], training: TrainingConfig) -> list[str]:
    """Those whose start is there."""
    return [name for name in waiting if (before := comes_after(name, training)) is None or before in ended]


def _place(accelerator: str, seat: int, at_once: int) -> Place:
    named = os.environ.get(GPUS)
    gpus = named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]
    shared = accelerator == "cpu" or len(gpus) < 2
    return Place(accelerator, None if shared else gpus[seat % len(gpus)], max(1, cores_here() // at_once))


def _begin(training: TrainingConfig, name: str, out: Path, *, seed: int, seat: int, place: Place) -> Job:
    context = mp.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(training, name, out, seed, place, sender), name=name, daemon=True)
    process.start()
    sender.close()
    return Job(process, receiver, seat)


def _work(training: TrainingConfig, name: str, out: Path, seed: int, place: Place, answer: Connection) -> None:
    """One run, in its own process. Ctrl-C is for the parent, which asks all runs to save their state."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if place.gpu is not None:
        os.environ[GPUS] = place.gpu
    torch.set_num_threads(place.threads)
    notes = Collected()
    # Bars of several runs would write over each other: the parent tells how far they are.
    quiet = Console(quiet=True)
    with stop_on_signals():
        ended = do_run(training, name, out, seed=seed, accelerator=place.accelerator, log=notes, console=quiet)
        answer.send((ended, notes.lines))


def _finish(name: str, job: Job, log: TrainingLog) -> Ended:
    """What a run's process says of itself, or what its end says of it."""
    try:
        answer: tuple[Ended, list[Note]] = job.answer.recv()
    except (EOFError, OSError):  # before a word of it, or in the middle
        job.process.join()
        if job.process.exitcode == -signal.SIGTERM:
            return Ended(name, "stopped", "the same command goes on")
        if job.process.exitcode == -signal.SIGKILL:
            return Ended(name, "failed", "its process was killed; if memory ran out, give a lower --at-once")
        return Ended(name, "failed", f"its process ended with exit code {job.process.exitcode}")
    job.process.join()
    (ended, lines), at_once = answer, job.at_once
    for run, event, values in lines:
        beside = f", {at_once} runs at a time" if at_once > 1 else ""
        log.add(run, event, **{**values, "hardware": f"{values['hardware']}{beside}", "at_once": at_once})
    return ended


def _ask_to_stop(jobs: dict[str, Job]) -> None:
    for job in jobs.values():
        if job.process.is_alive():
            job.process.terminate()


def _progress(out: Path, name: str) -> str:
    steps = steps_of(run_folder(out, name))
    return f"{name}: Stage {list(steps)[-1]}, step {list(steps.values())[-1]}" if steps else f"{name}: starting"
