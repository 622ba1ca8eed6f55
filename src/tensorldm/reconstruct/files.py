"""From files to files: every scan is checked before a model is loaded, and each result appears whole."""

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensorldm import __version__
from tensorldm.errors import TensorldmError, ToolError, about, heard
from tensorldm.imaging.tensor_sidecar import read_sidecar
from tensorldm.imaging.volume import Volume
from tensorldm.reconstruct.choice import Choice
from tensorldm.reconstruct.derivative import sidecar_notes
from tensorldm.reconstruct.engine import Engine
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.journal import describe_inputs, journal_of, note_done, recipe_of
from tensorldm.reconstruct.naming import Naming
from tensorldm.reconstruct.outputs import appearing, check_writable, remove_stale, write_result
from tensorldm.reconstruct.ownership import mark
from tensorldm.reconstruct.pipeline import Stopwatch, Tell, reconstruct_series, reconstructing
from tensorldm.reconstruct.plan import Plan, make_plan
from tensorldm.reconstruct.reading import read_given_mask, read_scan_header, read_series
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings, check_convention
from tensorldm.reconstruct.shared_engine import SharedEngine
from tensorldm.reconstruct.summary import Summary, summarise
from tensorldm.shapes import MaskImage
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


def check_files(files: InputFiles, request: Request, *, naming: Naming) -> Job:
    """Refuse what names, headers and gradients can tell; takes milliseconds."""
    choice = request.choice
    with heard() as words:
        header = read_scan_header(files)
        with about(files.image):
            plan = make_plan(header.space, header.gradients, traits=choice.traits, settings=request.settings)
    said = (*words, *([choice.word] if choice.word else []), *plan.warnings)
    return Job(files, replace(plan, warnings=tuple(dict.fromkeys(said))), naming)


@dataclass(frozen=True, eq=False)
class Gathered:
    """What was read of a scan."""

    series: Volume
    """The volumes of ``plan.read``."""
    mask: MaskImage | None
    """None: the brain has to be found."""
    sources: tuple[SourceFile, ...]
    """Every file that was read, with its hash."""
    words: tuple[str, ...]


def run_job(job: Job, engine: Engine, *, request: Request, tell: Tell) -> tuple[Finished, Reconstruction]:
    """Reconstruct one scan and write its files, all or none, and its line in the journal."""
    watch = Stopwatch(tell)
    gathered = read_job(job, watch=watch)
    with about(job.files.image):
        result = reconstruct_series(
            gathered.series, job.plan, mask=gathered.mask, engine=engine, settings=request.settings, watch=watch
        )
    if isinstance(engine, SharedEngine):
        watch.add(reconstructing(engine.traits), -engine.waited)
        watch.add("waiting for the device", engine.waited)
    result = replace(result, warnings=tuple(dict.fromkeys((*gathered.words, *result.warnings))))
    return write_job(job, result, sources=gathered.sources, request=request, watch=watch)


def read_job(job: Job, *, watch: Stopwatch) -> Gathered:
    """Read the voxels of a scan, and what its files hash to."""
    with heard() as words, watch.part("reading"):
        mask = read_given_mask(job.files, job.plan.space)
        series = read_series(job.files, job.plan.read)
        sources = describe_inputs(job.files)
    return Gathered(series, mask, sources, tuple(words))


def write_job(
    job: Job, result: Reconstruction, *, sources: tuple[SourceFile, ...], request: Request, watch: Stopwatch
) -> tuple[Finished, Reconstruction]:
    """Write the files of a result, all or none, then its line in the journal; a picture that is missing is told."""
    out, name = request.out, job.files.name
    with watch.part("writing"), appearing(out) as hidden:
        mark(hidden)
        picture = hidden / job.naming.picture
        result = _with_picture(result, picture, request.draw)
        notes = _origin(job, sources, request.settings)
        shared = sidecar_notes(job.files, job.naming)
        written = write_result(
            result, job.naming, root=hidden, convention=request.convention, notes=notes, shared=shared
        )
        written += [picture] if picture.is_file() else []
        written += _with_page(result, hidden, job.naming, request.describe)
        made = [out / path.relative_to(hidden) for path in hidden.rglob("*") if path.is_file()]
        journal_of(out).forget(name)  # from here on an earlier result may be half replaced
    placed = tuple(out / path.relative_to(hidden) for path in written)
    remove_stale(out, job.naming, written=placed)
    finished = Finished(name, summarise(name, result), _brain(job), placed)
    note_done(
        out,
        name,
        sources=sources,
        recipe=request.recipe(job.naming),
        brain=finished.brain,
        written=made,
        summary=finished.summary,
    )
    return finished, result


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
