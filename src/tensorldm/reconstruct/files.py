"""From files to files: every scan is checked before a model is loaded, and each result appears whole."""

import platform
import secrets
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensorldm import __version__
from tensorldm.errors import DataError, TensorldmError, ToolError, about, heard
from tensorldm.imaging.tensor_sidecar import read_sidecar
from tensorldm.reconstruct.choice import Choice, own_gpu
from tensorldm.reconstruct.derivative import check_place, describe_dataset, sidecar_notes
from tensorldm.reconstruct.engine import Engine
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.journal import Entry, describe_inputs, find_done, journal_of, note_done, recipe_of
from tensorldm.reconstruct.naming import Naming, naming_for
from tensorldm.reconstruct.outputs import appearing, check_writable, remove_stale, write_result
from tensorldm.reconstruct.pipeline import Stopwatch, Tell, reconstruct_series
from tensorldm.reconstruct.plan import Plan, make_plan
from tensorldm.reconstruct.reading import read_given_mask, read_scan_header, read_series
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings, check_convention
from tensorldm.reconstruct.summary import Summary, summarise
from tensorldm.work.crew import ALONE, Crew, Done, Lost, perform, silent
from tensorldm.work.folder import writing_to
from tensorldm.work.processes import let_go, once
from tensorldm.work.sources import SourceFile

Draw = Callable[[Path, Reconstruction], None]
"""Draws the overview of a reconstruction into a file; pictures belong to a higher layer, so it is handed in."""
Describe = Callable[[Path, Reconstruction, Mapping[str, Any]], None]
"""Writes the page about a reconstruction, from it and the sidecar of its tensor."""


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
    describe: Describe | None = None
    redo: bool = False
    """Do again what is done already."""

    def __post_init__(self) -> None:
        check_convention(self.convention)
        check_writable(self.out)

    def recipe(self, naming: Naming) -> str:
        """Everything that decides a result but the scan, as the journal keeps it."""
        return recipe_of(
            self.settings,
            method=self.choice.identity,
            device=self.device.type,
            convention=self.convention,
            names=naming.image("tensor").as_posix(),
            pictures=[self.draw is not None, self.describe is not None],
        )


@dataclass(frozen=True, eq=False)
class Finished:
    """A result on the disk; its arrays stay where they were made."""

    name: str
    summary: Summary
    brain: str
    """Where the brain mask comes from."""
    written: tuple[Path, ...]
    kept: bool = False
    """It was there already, from the same inputs and settings."""


@dataclass(frozen=True)
class Failed:
    """A scan without a result, and why."""

    name: str
    error: TensorldmError
    traceback: str = field(default="", repr=False)
    """Where our own code broke: not the user's to mend."""


def reconstruct_files(
    inputs: Sequence[InputFiles], request: Request, *, tell: Tell, crew: Crew = ALONE, say: Tell = silent
) -> Generator[Finished | Failed, None, None]:
    """Every scan: what is done already is kept, the others are checked, then shared out; a bad one stops nobody.

    ``tell`` hears what is being done, ``say`` what a user should read about the crew. Outcomes come as they are known.
    """
    with writing_to(request.out):
        missing, alone = [], len(inputs) == 1
        if any(files.entities is not None for files in inputs):
            check_place(request.out)
        for files in inputs:
            tell(f"{files.name}: checking")
            naming = naming_for(files, alone=alone, grid=request.settings.grid)
            try:
                done = None if request.redo else find_done(request.out, files, recipe=request.recipe(naming))
                if done is None:
                    check_files(files, request, naming=naming)
                    missing.append(files)
                else:
                    yield _kept(done, request.out)
            except TensorldmError as error:
                yield Failed(files.name, error)
        here = crew.stays_here(len(missing))
        task = Reconstructing(request, secrets.token_hex(8), alone=alone, tell=tell if here else silent)
        with closing(perform(task, missing, crew=crew, tell=say)) as ended:
            try:
                for each in ended:
                    outcome = each.value if isinstance(each, Done) else _lost(each)
                    if isinstance(outcome, Finished):
                        describe_dataset(request.out, each.job)
                    yield outcome
            finally:
                let_go(task.token)


@dataclass(frozen=True, eq=False)
class Reconstructing:
    """The work on one scan, wherever it is done; a process loads the model once."""

    request: Request
    token: str
    """Of this call: the model of another call is another model."""
    alone: bool
    """The only scan of its call: it needs no folder of its own, and a bug may end the program."""
    tell: Tell

    def __call__(self, files: InputFiles) -> Finished | Failed:
        """The result on the disk and in the journal, or why there is none."""
        try:
            return self._do(files)
        except TensorldmError as error:
            return Failed(files.name, error)
        except Exception as error:
            if self.alone:
                raise
            what = f"{files.image}: unexpected {type(error).__name__}. This is a bug: report it with the traceback."
            return Failed(files.name, DataError(what), "".join(traceback.format_exception(error)))

    def _do(self, files: InputFiles) -> Finished:
        request = self.request
        naming = naming_for(files, alone=self.alone, grid=request.settings.grid)
        job = check_files(files, request, naming=naming)
        engine = once(self.token, lambda: request.choice.load(request.settings, device=own_gpu(request.device)))
        finished, _ = run_job(job, engine, request=request, tell=partial(_tell_of, self.tell, files.name))
        return finished


def check_files(files: InputFiles, request: Request, *, naming: Naming) -> Job:
    """Refuse what names, headers and gradients can tell; takes milliseconds."""
    choice = request.choice
    with heard() as words:
        header = read_scan_header(files)
        with about(files.image):
            plan = make_plan(header.space, header.gradients, traits=choice.traits, settings=request.settings)
    said = (*words, *([choice.word] if choice.word else []), *plan.warnings)
    return Job(files, replace(plan, warnings=tuple(dict.fromkeys(said))), naming)


def run_job(job: Job, engine: Engine, *, request: Request, tell: Tell) -> tuple[Finished, Reconstruction]:
    """Reconstruct one scan and write its files, all or none, and its line in the journal."""
    watch, settings, out = Stopwatch(tell), request.settings, request.out
    with heard() as words, watch.part("reading"):
        mask = read_given_mask(job.files, job.plan.space)
        series = read_series(job.files, job.plan.read)
        sources = describe_inputs(job.files)
    with about(job.files.image):
        result = reconstruct_series(series, job.plan, mask=mask, engine=engine, settings=settings, watch=watch)
    result = replace(result, warnings=tuple(dict.fromkeys((*words, *result.warnings))))
    with watch.part("writing"), appearing(out) as hidden:
        picture = hidden / job.naming.picture
        result = _with_picture(result, picture, request.draw)
        notes = _origin(job, sources, settings)
        shared = sidecar_notes(job.files, job.naming)
        written = write_result(
            result, job.naming, root=hidden, convention=request.convention, notes=notes, shared=shared
        )
        written += [picture] if picture.is_file() else []
        written += _with_page(result, hidden, job.naming, request.describe)
        made = [out / path.relative_to(hidden) for path in hidden.rglob("*") if path.is_file()]
        journal_of(out).forget(job.files.name)  # from here on an earlier result may be half replaced
    placed = tuple(out / path.relative_to(hidden) for path in written)
    remove_stale(out, job.naming, written=placed)
    finished = Finished(job.files.name, summarise(job.files.name, result), _brain(job), placed)
    note_done(
        out,
        job.files.name,
        sources=sources,
        recipe=request.recipe(job.naming),
        brain=finished.brain,
        written=made,
        summary=finished.summary,
    )
    return finished, result


def _kept(done: Entry, out: Path) -> Finished:
    return Finished(done.name, done.summary, done.brain, tuple(out / file.path for file in done.written), kept=True)


def _lost(lost: Lost[InputFiles]) -> Failed:
    return Failed(lost.job.name, DataError(f"{lost.job.image}: {lost.reason}"))


def _with_picture(result: Reconstruction, path: Path, draw: Draw | None) -> Reconstruction:
    """Draw, and go on with a word where the drawing library is missing."""
    try:
        if draw is not None:
            draw(path, result)
    except ToolError as error:
        return replace(result, warnings=(*result.warnings, str(error)))
    return result


def _with_page(result: Reconstruction, root: Path, naming: Naming, describe: Describe | None) -> list[Path]:
    """The page, where one is wanted; without the library that draws there is none, as was said of the picture."""
    if describe is None:
        return []
    try:
        describe(root / naming.report, result, read_sidecar(root / naming.image("tensor")))
    except ToolError:
        return []
    return [root / naming.report]


def _tell_of(tell: Tell, name: str, part: str) -> None:
    tell(f"{name}: {part}")


def _brain(job: Job) -> str:
    return "found in the b=0 image" if job.files.mask is None else f"mask {job.files.mask.name}"


def _gradient_lines(plan: Plan) -> list[str]:
    """Every volume of the series as MRtrix3 writes it: direction in scanner axes, b-value."""
    directions = plan.gradients.to_scanner(plan.space) + 0.0
    return [f"{x:.6f} {y:.6f} {z:.6f} {b:g}" for (x, y, z), b in zip(directions, plan.gradients.bvals, strict=True)]


def _origin(job: Job, sources: Iterable[SourceFile], settings: Settings) -> dict[str, Any]:
    """What made the result, beside the method's own words."""
    return {
        "Subject": job.files.name,
        "Inputs": {source.role: source.sha256 for source in sources},
        "Directions": settings.directions,
        "GradientTable": _gradient_lines(job.plan),
        "Brain": _brain(job),
        "Versions": {
            "tensorldm": __version__,
            "torch": torch.__version__.split("+")[0],
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
