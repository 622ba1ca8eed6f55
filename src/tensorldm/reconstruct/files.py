"""From files to files: every scan is checked before a model is loaded, and each result appears whole."""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensorldm import __version__
from tensorldm.errors import TensorldmError, ToolError, about, heard
from tensorldm.reconstruct.choice import Choice
from tensorldm.reconstruct.engine import Engine
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.naming import Naming, naming_for
from tensorldm.reconstruct.outputs import appearing, check_writable, remove_stale, write_result
from tensorldm.reconstruct.pipeline import Stopwatch, Tell, reconstruct_series
from tensorldm.reconstruct.plan import Plan, make_plan
from tensorldm.reconstruct.reading import hash_files, read_given_mask, read_scan_header, read_series
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings, check_convention

Draw = Callable[[Path, Reconstruction], None]
"""Draws the overview of a reconstruction into a file; pictures belong to a higher layer, so it is handed in."""


@dataclass(frozen=True, eq=False)
class Job:
    """A scan whose headers and gradients are good."""

    files: InputFiles
    plan: Plan
    naming: Naming


@dataclass(frozen=True, eq=False)
class Request:
    """What is done with every scan of a call."""

    choice: Choice
    settings: Settings
    device: torch.device
    out: Path
    convention: str
    draw: Draw | None = None

    def __post_init__(self) -> None:
        check_convention(self.convention)
        check_writable(self.out)


@dataclass(frozen=True, eq=False)
class Finished:
    """A result on the disk."""

    name: str
    result: Reconstruction
    brain: str
    """Where the brain mask comes from."""
    written: tuple[Path, ...]


@dataclass(frozen=True)
class Failed:
    """A scan without a result, and why."""

    name: str
    error: TensorldmError


def reconstruct_files(inputs: Sequence[InputFiles], request: Request, *, tell: Tell) -> Iterator[Finished | Failed]:
    """Every scan in turn: all are checked, then the model is loaded once; one bad scan does not stop the others."""
    jobs = []
    for files in inputs:
        try:
            jobs.append(check_files(files, request, naming=naming_for(files, alone=len(inputs) == 1)))
        except TensorldmError as error:
            yield Failed(files.name, error)
    if not jobs:
        return
    engine = request.choice.load(request.settings, device=request.device)
    for job in jobs:
        try:
            yield run_job(job, engine, request=request, tell=partial(_tell_of, tell, job.files.name))
        except TensorldmError as error:
            yield Failed(job.files.name, error)


def check_files(files: InputFiles, request: Request, *, naming: Naming) -> Job:
    """Refuse what names, headers and gradients can tell; takes milliseconds."""
    choice = request.choice
    with heard() as words:
        header = read_scan_header(files)
        with about(files.image):
            plan = make_plan(header.space, header.gradients, traits=choice.traits, settings=request.settings)
    said = (*words, *([choice.word] if choice.word else []), *plan.warnings)
    return Job(files, replace(plan, warnings=tuple(dict.fromkeys(said))), naming)


def run_job(job: Job, engine: Engine, *, request: Request, tell: Tell) -> Finished:
    """Reconstruct one scan and write its files, all or none."""
    watch, settings, out = Stopwatch(tell), request.settings, request.out
    with heard() as words, watch.part("reading"):
        mask = read_given_mask(job.files, job.plan.space)
        series = read_series(job.files, job.plan.read)
        inputs = hash_files(job.files)
    with about(job.files.image):
        result = reconstruct_series(series, job.plan, mask=mask, engine=engine, settings=settings, watch=watch)
    result = replace(result, warnings=tuple(dict.fromkeys((*words, *result.warnings))))
    with watch.part("writing"), appearing(out) as hidden:
        picture = hidden / job.naming.picture
        result = _with_picture(result, picture, request.draw)
        notes = _origin(job, inputs, settings)
        written = write_result(result, job.naming, root=hidden, convention=request.convention, notes=notes)
        written += [picture] if picture.is_file() else []
    placed = tuple(out / path.relative_to(hidden) for path in written)
    remove_stale(out, job.naming, written=placed)
    return Finished(job.files.name, result, _brain(job), placed)


def _with_picture(result: Reconstruction, path: Path, draw: Draw | None) -> Reconstruction:
    """Draw, and go on with a word where the drawing library is missing."""
    try:
        if draw is not None:
            draw(path, result)
    except ToolError as error:
        return replace(result, warnings=(*result.warnings, str(error)))
    return result


def _tell_of(tell: Tell, name: str, part: str) -> None:
    tell(f"{name}: {part}")


def _brain(job: Job) -> str:
    return "found in the b=0 image" if job.files.mask is None else f"mask {job.files.mask.name}"


def _origin(job: Job, inputs: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    """What made the result, beside the method's own words."""
    return {
        "Subject": job.files.name,
        "Inputs": dict(inputs),
        "Directions": settings.directions,
        "Brain": _brain(job),
        "Versions": {
            "tensorldm": __version__,
            "torch": torch.__version__.split("+")[0],
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
