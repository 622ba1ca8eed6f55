"""A whole run: each stage starts from the last bundle and hands on its own. The same call again goes on.

RUN/config.yaml                 the settings
RUN/log.jsonl                   one record a line
RUN/stageN/stage.json           what the stage depends on: it goes on only with the same
RUN/stageN/checkpoints/         the last points to go on from
RUN/stageN/best/                bundle of the best validation so far
RUN/stageN/bundle/              the finished stage
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from tensorldm.bundle import INDEX
from tensorldm.config.reading import dump_config
from tensorldm.config.run import RunSettings
from tensorldm.errors import ConfigError
from tensorldm.imaging.atomic import write_text
from tensorldm.training.devices import Fabric, make_fabric
from tensorldm.training.fingerprint import check_fingerprint, fingerprint
from tensorldm.training.loop import samples_per_step
from tensorldm.training.method import TrainedMethod
from tensorldm.training.paper_stage import TENSORLDM
from tensorldm.training.runlog import RunLog
from tensorldm.training.signals import StoppedError, StopRequest, stop_on_signals
from tensorldm.training.sources import Source, cohort_of, open_source
from tensorldm.training.stage_run import Session, StageRun, leave_if_asked
from tensorldm.training.stages import settings_of
from tensorldm.work.memory import freed_memory_kept

EXPECTATION = 0
"""The stage before the paper's, of models that diffuse the difference from a regressed mean."""


def run_training(
    config: RunSettings,
    data: str,
    *,
    out: Path,
    stages: Sequence[int],
    start: Path | None = None,
    restart: bool = False,
    console: Console | None = None,
    method: TrainedMethod = TENSORLDM,
) -> bool:
    """Train the stages in order; whether all were finished (else a signal ended the run, cleanly)."""
    check_stages(config, out=out, stages=stages, start=start, method=method)
    fabric = make_fabric(config.hardware)
    if fabric.is_global_zero:
        _prepare_folder(config, out=out, stages=stages, restart=restart)
    fabric.barrier()
    with (
        RunLog(out, active=fabric.is_global_zero, console=console) as log,
        stop_on_signals() as stop,
        freed_memory_kept(fabric.device.type),
    ):
        try:
            _train_stages(config, data, out=out, stages=stages, start=start, method=method, at=At(fabric, log, stop))
        except StoppedError as stopped:
            log.say(str(stopped))
            return False
    return True


@dataclass(frozen=True)
class At:
    """Where a run works, whom it tells, and who may end it."""

    fabric: Fabric
    log: RunLog
    stop: StopRequest


def _train_stages(
    config: RunSettings,
    data: str,
    *,
    out: Path,
    stages: Sequence[int],
    start: Path | None,
    method: TrainedMethod,
    at: At,
) -> None:
    """Each stage that is not finished; ``StoppedError`` where somebody asked to end."""
    fabric, log = at.fabric, at.log
    source: Source | None = None
    for number in stages:
        beginning = start_of(number, out=out, start=start, method=method)
        now = fingerprint(
            config,
            number,
            data=data,
            cohort=cohort_of(config.data).model_dump(mode="json") if data.startswith("cohort:") else {},
            start=method.check_start(beginning, config) if beginning else "",
            samples_per_step=samples_per_step(fabric, settings_of(config, number)),
        )
        check_fingerprint(out / f"stage{number}", now, stage=number)
        fabric.barrier()
        if not _finished(out, number):
            before = partial(leave_if_asked, fabric, at.stop, where=f"before Stage {number}")
            before()
            source = source or open_source(data, config.data, device=fabric.device, pause=before)
            work = method.prepare(config, number, start=beginning)
            session = Session(config, fabric, source, log, at.stop)
            StageRun(session, work, folder=out / f"stage{number}").train()
        log.say(f"Stage {number} is finished: {bundle_of(out, number)}")


def parse_stages(text: str, method: TrainedMethod = TENSORLDM) -> list[int]:
    """``1-5``, ``4`` or ``1,2,4``: stages in order, each once."""
    numbers: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition("-")
            numbers += range(int(first), int(last or first) + 1)
    except ValueError:
        numbers = []
    known = list(method.stages)
    if not numbers or numbers != sorted(set(numbers)) or not set(numbers) <= set(known):
        raise ConfigError(
            f"--stages {text}: expected stages of {known[0]} to {known[-1]} in order, for example 1-5, 4 or 1,2,4,5."
        )
    return numbers


def bundle_of(out: Path, number: int) -> Path:
    """Where a finished stage's model lies."""
    return out / f"stage{number}" / "bundle"


def start_of(number: int, *, out: Path, start: Path | None, method: TrainedMethod = TENSORLDM) -> Path | None:
    """The bundle a stage begins with: the last finished stage of this run, else the one given, else none."""
    finished = [bundle_of(out, earlier) for earlier in method.stages[number].starts_from if _finished(out, earlier)]
    return finished[-1] if finished else start


def check_stages(
    config: RunSettings,
    *,
    out: Path,
    stages: Sequence[int],
    start: Path | None,
    method: TrainedMethod = TENSORLDM,
) -> None:
    """Every stage has something to start from, and it is this model; before anything is computed."""
    if start is not None:
        method.check_start(start, config)
    unknown = [number for number in stages if number not in config.stage_numbers]
    if unknown:
        raise ConfigError(f"Stage {unknown[0]} trains the expectation, which this model does not have. Leave it out.")
    for number in stages:
        row = method.stages[number]
        given = [earlier for earlier in row.starts_from if earlier in stages or _finished(out, earlier)]
        # Latents are the difference from what Stage 0 expects, where there is one: not from an untrained mean.
        expects = EXPECTATION in config.stage_numbers and EXPECTATION in row.starts_from
        if not given and start is None and (expects or not row.fresh):
            earlier = " or ".join(str(before) for before in row.starts_from)
            raise ConfigError(
                f"Stage {number} starts from Stage {earlier}, which is not in {out}. "
                "Train that first, or name a bundle with --from-bundle."
            )


def _finished(out: Path, number: int) -> bool:
    return (bundle_of(out, number) / INDEX).is_file()


def _prepare_folder(config: RunSettings, *, out: Path, stages: Sequence[int], restart: bool) -> None:
    if restart:
        for number in stages:
            shutil.rmtree(out / f"stage{number}", ignore_errors=True)
    write_text(out / "config.yaml", dump_config(config))
