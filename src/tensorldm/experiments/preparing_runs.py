"""From a recipe to a run that can start: method, settings, the bundle it goes on from, and its learning rate."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from tensorldm.baselines.learned.bundles import read_rival_info
from tensorldm.baselines.learned.runs import open_run
from tensorldm.bundle import read_info
from tensorldm.bundle_files import OURS
from tensorldm.config.run import RunConfig, RunSettings
from tensorldm.errors import ConfigError, DataError, TensorldmError
from tensorldm.experiments.ablated import AblatedMethod
from tensorldm.experiments.branching import (
    check_first_part,
    check_weights_fit,
    first_part,
    start_for,
    trained_hash,
)
from tensorldm.experiments.recipes import (
    LARGEST_STEPS,
    Recipe,
    TrainingConfig,
    bundle_folder,
    run_folder,
    shipped_model,
)
from tensorldm.imaging.atomic import write_json
from tensorldm.training.method import TrainedMethod
from tensorldm.training.run import bundle_of, check_stages, run_training
from tensorldm.training.signals import StopRequest, stop_on_signals
from tensorldm.training.validation import SCORE

RECIPE, TRIALS, RATE, START = "recipe.json", "trials", "rate.json", "start"
LONGEST_VALUE: Final = 80


@dataclass(frozen=True, eq=False)
class Ready:
    """A run whose settings are known to be right and whose start is there."""

    name: str
    recipe: Recipe
    method: TrainedMethod
    settings: RunSettings
    overrides: tuple[str, ...]
    size: str
    data: str
    folder: Path
    stages: tuple[int, ...]
    start: Path | None
    rate_factor: float = 1.0
    trials: Mapping[str, float | None] = field(default_factory=dict)
    """What short trials of learning rates came to, by factor; None where one did not stay finite."""

    @property
    def tried(self) -> tuple[int, ...]:
        """The stages that trials train, and whose learning rate they choose."""
        return self.recipe.tried or self.stages

    @property
    def bundle(self) -> Path:
        """Where its weights will lie."""
        return bundle_of(self.folder, self.stages[-1])

    def train(self, console: Console | None) -> bool:
        """Every stage of it; whether all were finished."""
        return run_training(
            self.settings,
            self.data,
            out=self.folder,
            stages=self.stages,
            start=self.start,
            console=console,
            method=self.method,
        )

    def measures(self, bundle: Path) -> dict[str, float]:
        """The last validation of a bundle that it made."""
        read = read_info if self.recipe.method == OURS else read_rival_info
        return read(bundle).card.measures

    def changed(self, overrides: Sequence[str], *, folder: Path | None = None) -> "Ready":
        """The same run with further changes to its settings."""
        together = (*self.overrides, *overrides)
        _, settings = open_run(self.recipe.method, self.size, together)
        return replace(self, overrides=together, settings=settings, folder=folder or self.folder)

    def with_rates(self, factor: float) -> "Ready":
        """The same run with the learning rate of every stage that is tried times a factor."""
        rates = [
            f"stages.{n}.learning_rate={self.settings.stages[str(n)].learning_rate * factor!r}" for n in self.tried
        ]
        return replace(self.changed(rates if factor != 1 else []), rate_factor=factor)


def check_runs(training: TrainingConfig, out: Path, *, seed: int, only: Sequence[str] = ()) -> None:
    """Every setting of every run, and whether its start has the weights that it needs; before any is trained."""
    opened = {name: _open(training, name, out, seed=seed) for name in training.needed(only)}
    for name, run in opened.items():
        reference = run.recipe.before
        if reference is None and run.recipe.start:
            assert isinstance(run.settings, RunConfig), "what ships is the start of ours alone"
            check_first_part(shipped_model(), run.settings.model)
            continue
        if reference is None:
            check_stages(run.settings, out=run.folder, stages=run.stages, start=None, method=run.method)
            continue
        before = opened[reference.name]
        if reference.stage not in before.stages:
            raise ConfigError(
                f"runs.{name} starts from {run.recipe.start}, a stage that {before.name} does not train. Name another."
            )
        if isinstance(before.settings, RunConfig) and isinstance(run.settings, RunConfig):
            check_weights_fit(before.settings.model, run.settings.model, source=f"runs.{before.name}")


def planned_steps(training: TrainingConfig, name: str) -> dict[int, int]:
    """The steps of every stage of a run, by number; no more than an upper limit where minutes end it."""
    run = _open(training, name, Path(), seed=0)
    return {number: run.settings.stages[str(number)].steps for number in run.stages}


def make_ready(training: TrainingConfig, name: str, out: Path, *, seed: int, accelerator: str = "auto") -> Ready:
    """A run's method, settings and start, checked; a run that was begun by another recipe is refused."""
    ready = _open(training, name, out, seed=seed, accelerator=accelerator)
    start = _start(training, ready, out=out)
    check_stages(ready.settings, out=ready.folder, stages=ready.stages, start=start, method=ready.method)
    if start is not None:
        ready.method.check_start(start, ready.settings)
    _check_recipe(ready, weights=_start_hash(training, ready, out=out), rates=training.rates)
    return replace(ready, start=start)


def _open(training: TrainingConfig, name: str, out: Path, *, seed: int, accelerator: str = "auto") -> Ready:
    """A run as its settings have it; nothing of it need be there."""
    recipe = training.runs[name]
    size = recipe.size or training.size
    overrides = (
        *training.changes,
        *_budget(recipe, scale=training.time_scale),
        f"seed={seed if recipe.seed is None else recipe.seed}",
        f"hardware.accelerator={accelerator}",
        *recipe.changes,
    )
    method, settings = open_run(recipe.method, size, overrides)
    if recipe.variant:
        method = AblatedMethod(recipe.variant)
    stages = recipe.stages or tuple(number for number in settings.stage_numbers if number in method.stages)
    unknown = [number for number in stages if number not in method.stages]
    if unknown:
        raise ConfigError(f"runs.{name} has no Stage {unknown[0]}. Give some of {', '.join(map(str, method.stages))}.")
    if recipe.tried != stages[: len(recipe.tried)]:
        raise ConfigError(
            f"runs.{name}.tried: a trial begins where the run does. Give the first of Stages "
            f"{', '.join(map(str, stages))}, or more of them in their order."
        )
    folder = run_folder(out, name)
    return Ready(name, recipe, method, settings, overrides, size, training.data, folder, tuple(stages), None)


def choose_rate(ready: Ready, training: TrainingConfig, *, console: Console | None) -> Ready:
    """The run with the factor on its learning rates whose short trial had the best validation.

    The trials are kept, so that a stopped choice goes on. ``InterruptedError`` where somebody asked to stop.
    """
    if not training.rates:
        return ready
    path = ready.folder / RATE
    if path.is_file():
        return _with_choice(ready, _read(path))
    if not ready.settings.validation.subjects:
        raise ConfigError(
            f"{ready.name}: a learning rate is chosen on validation, and validation.subjects is 0. Set it, or leave "
            "training.rates empty."
        )
    with stop_on_signals() as stop:
        scores = {factor: _trial(ready, factor, training, console=console, stop=stop) for factor in training.rates}
    best = min(scores, key=lambda factor: scores[factor])
    if not math.isfinite(scores[best]):
        raise TensorldmError(f"{ready.name}: no trial of a learning rate ended with a finite {SCORE}. Lower the rates.")
    told = {f"{factor:g}": value if math.isfinite(value) else None for factor, value in scores.items()}
    choice = {"factor": best, SCORE: told}
    write_json(path, choice)
    shutil.rmtree(ready.folder / TRIALS, ignore_errors=True)
    return _with_choice(ready, choice)


def _with_choice(ready: Ready, choice: Mapping[str, Any]) -> Ready:
    return replace(ready.with_rates(float(choice["factor"])), trials=dict(choice.get(SCORE, {})))


def _trial(
    ready: Ready, factor: float, training: TrainingConfig, *, console: Console | None, stop: StopRequest
) -> float:
    """The score of a short run with its rates times a factor; infinite where it did not stay finite."""
    shorter = ready.with_rates(factor).changed(_shorter(ready, training), folder=ready.folder / TRIALS / f"{factor:g}")
    trial = replace(shorter, stages=ready.tried)
    try:
        done = not stop and trial.train(console)
    except (ConfigError, DataError):
        raise
    except TensorldmError:  # a loss that is no number: this rate is too high
        return math.inf
    if not done:
        raise InterruptedError("in a trial of a learning rate; the same command goes on")
    return float(trial.measures(trial.bundle)[SCORE])


def _shorter(ready: Ready, training: TrainingConfig) -> list[str]:
    """A trial is the run in small: with its share of minutes or steps, and of the steps in which the rate rises."""
    share = training.trial_share
    changes = _budget(ready.recipe, scale=training.time_scale * share)
    for number in ready.stages:
        stage = ready.settings.stages[str(number)]
        if number not in ready.recipe.minutes:
            changes.append(f"stages.{number}.steps={max(1, round(share * stage.steps))}")
        # Else it would end while its rate still rises, and tell nothing of how high that may be.
        changes.append(f"stages.{number}.warmup_steps={round(share * stage.warmup_steps)}")
    return changes


def _budget(recipe: Recipe, *, scale: float) -> list[str]:
    return [
        change
        for number, minutes in recipe.minutes.items()
        for change in (f"stages.{number}.minutes={scale * minutes!r}", f"stages.{number}.steps={LARGEST_STEPS}")
    ]


def _start_hash(training: TrainingConfig, ready: Ready, *, out: Path) -> str:
    """Of the weights that a run goes on from; none where it starts afresh."""
    if not ready.recipe.start:
        return ""
    before = ready.recipe.before
    return trained_hash(shipped_model() if before is None else bundle_folder(out, before, runs=training.runs))


def _start(training: TrainingConfig, ready: Ready, *, out: Path) -> Path | None:
    """The bundle that a run goes on from, under its own settings."""
    if not ready.recipe.start:
        return None
    if ready.recipe.before is None:
        return first_part(shipped_model(), folder=ready.folder / START)
    bundle = bundle_folder(out, ready.recipe.before, runs=training.runs)
    if not isinstance(ready.settings, RunConfig):
        return bundle
    return start_for(bundle, ready.settings.model, folder=ready.folder / START)


def _check_recipe(ready: Ready, *, weights: str, rates: Sequence[float]) -> None:
    """Note what a run is begun with; refuse to go on with something else."""
    path = ready.folder / RECIPE
    now = {
        "method": ready.recipe.method,
        "variant": ready.recipe.variant,
        "size": ready.size,
        "data": ready.data,
        "stages": list(ready.stages),
        "settings": [change for change in ready.overrides if not change.startswith("hardware.accelerator=")],
        "rates": list(rates),
        "start": weights,
        # Only where it decides something: what was begun before there was a choice goes on, and can be carried.
        **({"tried": list(ready.tried)} if rates and ready.tried != ready.stages else {}),
    }
    if not path.is_file():
        write_json(path, now)
        return
    before = _read(path)
    changed = [key for key in {**now, **before} if before.get(key) != now.get(key)]
    if changed:
        was, is_now = (str(each.get(changed[0], "not said"))[:LONGEST_VALUE] for each in (before, now))
        raise ConfigError(
            f"{path}: this run was begun with other {changed[0]} ({was}; now {is_now}). Use those of before, give "
            "another --out, or remove the run's folder."
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Remove the run's folder to train it anew.") from error
