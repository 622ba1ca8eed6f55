"""Train every model of a study that is not trained yet, one after the other, each with its own budget.

STUDY/runs/NAME/recipe.json     what the run was begun with: it goes on only with the same
STUDY/runs/NAME/rate.json       what came of short trials of several learning rates
STUDY/runs/NAME/stageN/bundle/  as of `tensorldm train`
STUDY/training.jsonl            a line for every session of every run

A run that fails is noted and the others go on; those that start from it are left out. The same call goes on.
"""

import gc
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, runtime_checkable

import torch
from rich.console import Console

from tensorldm.bundle import INDEX
from tensorldm.config.run import HardwareConfig
from tensorldm.doctor import describe_device
from tensorldm.errors import TensorldmError
from tensorldm.experiments.preparing_runs import Ready, check_runs, choose_rate, make_ready, planned_steps
from tensorldm.experiments.recipes import RUNS, RunReference, TrainingConfig, bundle_folder, run_folder
from tensorldm.experiments.record import processor_name, read_commit
from tensorldm.experiments.training_log import TRAINED, TrainingLog, steps_of
from tensorldm.imaging.atomic import write_text
from tensorldm.training.opened import let_go
from tensorldm.training.signals import stop_on_signals
from tensorldm.work.folder import writing_to

Say = Callable[[str], None]
End = Literal["trained", "failed", "left out", "stopped"]
TRACEBACK: Final = "error.txt"
SECONDS_A_MINUTE: Final = 60


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    run: str
    end: End
    words: str = ""

    @classmethod
    def left_out(cls, run: str, before: str) -> "Ended":
        """A run whose start is missing."""
        return cls(run, "left out", f"it starts from {before}, which is not trained")

    @classmethod
    def not_begun(cls, run: str) -> "Ended":
        """A run whose turn did not come before somebody asked to stop."""
        return cls(run, "stopped", "not begun")

    def describe(self) -> str:
        """A line for who waits."""
        return f"{self.run}: {self.end}" + (f" ({self.words})" if self.words else "")


@runtime_checkable
class Notes(Protocol):
    """What takes note of a session: the study's log, or who writes there later."""

    def add(self, run: str, event: str, **values: Any) -> None:
        """One more line."""
        ...


def describe_budget(training: TrainingConfig, only: Sequence[str] = ()) -> list[str]:
    """The minutes of every run and of all, before any is spent."""
    names = training.needed(only)
    lines = []
    for name in names:
        recipe, steps = training.runs[name], planned_steps(training, name)
        told = {n: f"{training.time_scale * minutes:.3g} minutes" for n, minutes in recipe.minutes.items()}
        stages = ", ".join(f"Stage {n}: {told.get(n, f'{count} steps')}" for n, count in steps.items())
        start = f"; from {recipe.start}" if recipe.start else ""
        lines.append(f"{name}: {recipe.method}, {stages}{start}")
    total = sum(training.minutes(name) for name in names)
    by_steps = sum(set(planned_steps(training, name)) > set(training.runs[name].minutes) for name in names)
    count = len(training.rates)
    whole = total + count * training.trial_share * sum(training.minutes_tried(name) for name in names)
    tried = f", {whole:.3g} with the trials of {count} learning rates" if count else ""
    budget = [f"{total:.3g} minutes of steps{tried}"] if total else []
    budget += [f"{by_steps} of them by steps, which take as long as they take"] if by_steps else []
    return [*lines, f"{len(names)} runs, {'; '.join(budget)}; opening and validating come on top"]


def train_runs(
    training: TrainingConfig,
    out: Path,
    *,
    seed: int,
    only: Sequence[str] = (),
    accelerator: str = "auto",
    say: Say,
    console: Console | None = None,
) -> list[Ended]:
    """Do what is missing of the named runs (all where none is named) and of what they start from."""
    check_runs(training, out, seed=seed, only=only)
    names, log = training.needed(only), TrainingLog.of(out)
    ended: dict[str, Ended] = {}
    with writing_to(out / RUNS), stop_on_signals() as stop:
        for count, name in enumerate(names, start=1):
            if stop:  # a run that was just ending has heard it too late
                ended[name] = Ended.not_begun(name)
                break
            say(f"{name} ({count} of {len(names)}): {training.minutes(name):.3g} minutes")
            before = comes_after(name, training)
            if before in ended and ended[before].end != TRAINED:
                ended[name] = Ended.left_out(name, before)
            else:
                ended[name] = do_run(training, name, out, seed=seed, accelerator=accelerator, log=log, console=console)
            say(ended[name].describe())
            if ended[name].end == "stopped":
                break
    let_go()
    return list(ended.values())


def comes_after(name: str, training: TrainingConfig) -> str | None:
    """The run that this one starts from."""
    before = training.runs[name].before
    return None if before is None else before.name


def do_run(
    training: TrainingConfig,
    name: str,
    out: Path,
    *,
    seed: int,
    accelerator: str,
    log: Notes,
    console: Console | None = None,
) -> Ended:
    """One run, its learning rate chosen first; what it starts from is trained."""
    ready = _attempt(training, name, out, seed=seed, accelerator=accelerator, console=console)
    return ready if isinstance(ready, Ended) else _train(ready, log, console=console)


def _attempt(
    training: TrainingConfig, name: str, out: Path, *, seed: int, accelerator: str, console: Console | None
) -> Ready | Ended:
    """A run made ready; what is wrong with its settings, data or start is said before anything is trained."""
    try:
        ready = make_ready(training, name, out, seed=seed, accelerator=accelerator)
        finished = bundle_folder(out, RunReference(name, ready.stages[-1]), runs=training.runs)
        if (finished / INDEX).is_file():
            return Ended(name, "trained", "before")
        return choose_rate(ready, training, console=console)
    except InterruptedError as stopped:
        return Ended(name, "stopped", str(stopped))
    except Exception as error:
        return _failed(name, error, run_folder(out, name))


def _failed(name: str, error: Exception, folder: Path) -> Ended:
    """How a run failed, in words: an hour of other runs may wait behind it. A bug leaves its traceback."""
    if isinstance(error, TensorldmError):
        return Ended(name, "failed", str(error))
    if isinstance(error, torch.OutOfMemoryError):
        return Ended(name, "failed", "out of GPU memory: lower its batch_size and raise accumulate")
    write_text(folder / TRACEBACK, "".join(traceback.format_exception(error)))
    return Ended(name, "failed", f"{type(error).__name__}, see {folder / TRACEBACK}")


def _train(ready: Ready, log: Notes, *, console: Console | None) -> Ended:
    """The run itself; its minutes are noted however it ends."""
    began, name = time.perf_counter(), ready.name
    try:
        done = ready.train(console)
        end = Ended(name, "trained") if done else Ended(name, "stopped", "the same command goes on")
    except Exception as error:
        end = _failed(name, error, ready.folder)
    minutes = (time.perf_counter() - began) / SECONDS_A_MINUTE
    _note(log, ready, end, minutes)
    if end.end == TRAINED:
        _tidy(ready)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return end


def _tidy(ready: Ready) -> None:
    """Leave the bundles and the log: points to go on from are several times as large, and nothing goes on from them."""
    for number in ready.stages:
        for name in ("checkpoints", "best"):
            shutil.rmtree(ready.folder / f"stage{number}" / name, ignore_errors=True)


def _note(log: Notes, ready: Ready, end: Ended, minutes: float) -> None:
    known = {} if end.end != TRAINED else {"measures": ready.measures(ready.bundle)}
    log.add(
        ready.name,
        end.end,
        method=ready.recipe.method,
        words=end.words,
        seed=ready.settings.seed,
        session_minutes=round(minutes, 3),
        minutes={str(n): round(m, 3) for n in ready.stages if (m := ready.settings.stages[str(n)].minutes)},
        steps=steps_of(ready.folder),
        rate_factor=ready.rate_factor,
        rate_stages=list(ready.recipe.tried),
        trials=ready.trials,
        hardware=_hardware(ready.settings.hardware),
        commit=read_commit(Path(__file__).parents[3]),
        **known,
    )


def _hardware(settings: HardwareConfig) -> str:
    """What a run was trained on, which is not always the best device there, and in which precision."""
    on_gpu = settings.accelerator != "cpu" and torch.cuda.is_available()
    device = describe_device() if on_gpu else f"cpu: {processor_name()}, {torch.get_num_threads()} threads"
    precision = settings.precision if settings.precision != "auto" else ("bf16-mixed" if on_gpu else "32-true")
    return f"{device}, {precision}"
