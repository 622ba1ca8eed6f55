"""Many subjects at once: folders of tensors paired by the subject that sidecars name, measured by several workers.

What is measured is written down beside the table; the same command again measures only what is new or changed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from tensorldm import __version__
from tensorldm.config.reading import Strict
from tensorldm.errors import DataError, TensorldmError
from tensorldm.evaluation.evaluate import REFERENCE, evaluate_files, mask_of
from tensorldm.evaluation.table import Row
from tensorldm.imaging.tensor_sidecar import read_provenance, read_sidecar
from tensorldm.work.bugs import explain
from tensorldm.work.crew import Crew, Done, Tell, perform
from tensorldm.work.journal import Journal
from tensorldm.work.sources import SourceFile, describe_sources


@dataclass(frozen=True)
class Case:
    """A subject: its reference, and the tensor of each method that has one."""

    subject: str
    reference: Path
    predictions: tuple[Path, ...]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Cases:
    """What a cohort holds."""

    cases: tuple[Case, ...]
    problems: tuple[str, ...]
    """A sentence for every tensor that is missing or that cannot be told from another."""


class Measured(Strict):
    """A subject in the journal."""

    model_config = ConfigDict(allow_inf_nan=True, ser_json_inf_nan="strings")  # identical images have infinite PSNR

    subject: str
    inputs_sha256: str
    sources: tuple[SourceFile, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of one subject."""

    subject: str
    rows: tuple[Row, ...] = ()
    problem: str = ""
    """One sentence, if it could not be measured."""
    traceback: str = ""
    """Of a bug."""
    kept: bool = False


def find_cases(reference: Path, predictions: Sequence[Path]) -> Cases:
    """The subjects of the reference's folder, each with its tensor in every other folder."""
    problems: list[str] = []
    truths = _by_subject(reference, problems)
    if not truths:
        raise DataError(f"{reference}: no tensor image with a sidecar that names its subject in or below it.")
    found = {folder: _by_subject(folder, problems) for folder in predictions}
    names = dict(zip(predictions, _method_names(predictions, found.values()), strict=True))
    cases = []
    for subject, path in sorted(truths.items()):
        own = {names[folder]: tensors[subject] for folder, tensors in found.items() if subject in tensors}
        problems += [f"{folder}: no tensor of {subject}." for folder in predictions if subject not in found[folder]]
        if own:
            cases.append(Case(subject, path, tuple(own.values()), tuple(own)))
    return Cases(tuple(cases), tuple(problems))


def evaluate_cases(
    cases: Sequence[Case], out: Path, *, convention: str | None, crew: Crew, tell: Tell
) -> Generator[Outcome, None, None]:
    """Measure every subject that the journal beside the table ``out`` does not have; outcomes as they are known."""
    journal = journal_beside(out)
    missing = []
    for case in cases:
        known = journal.entry(case.subject)
        if known is not None and _is_of_the_same(known, case, convention):
            yield Outcome(case.subject, known.rows, kept=True)
        else:
            missing.append(case)
    task = partial(measure_case, out=out, convention=convention)
    with closing(perform(task, missing, crew=crew, tell=tell)) as ended:
        for each in ended:
            if isinstance(each, Done):
                yield each.value
            else:
                yield Outcome(each.job.subject, problem=f"{each.job.reference}: {each.reason}")


def _is_of_the_same(known: Measured, case: Case, convention: str | None) -> bool:
    try:
        return known.inputs_sha256 == describe_inputs(case, convention, known=known.sources)[0]
    except TensorldmError:
        return False  # the worker meets it again, and tells it


def measure_case(case: Case, *, out: Path, convention: str | None) -> Outcome:
    """Measure one subject and write it down; done by a worker."""
    try:
        key, sources = describe_inputs(case, convention)
        rows = evaluate_files(
            case.reference, case.predictions, convention=convention, subject=case.subject, methods=case.methods
        )
        entry = Measured(subject=case.subject, inputs_sha256=key, sources=sources, rows=tuple(rows))
        journal_beside(out).write(case.subject, entry)
    except Exception as error:
        return Outcome(case.subject, (), *explain(error, where=case.reference))
    return Outcome(case.subject, tuple(rows))


def journal_beside(out: Path) -> Journal[Measured]:
    """What is measured for the table ``out``."""
    return Journal(out.with_name(f".{out.name}.journal"), Measured)


def describe_inputs(
    case: Case,
    convention: str | None,
    *,
    more_files: Sequence[tuple[str, Path]] = (),
    more: Any = None,
    known: Iterable[SourceFile] = (),
) -> tuple[str, tuple[SourceFile, ...]]:
    """One hash of all that decides a subject's figures, and the files that went into it."""
    files = [("reference", case.reference), ("mask", mask_of(case.reference, None))]
    files += [*zip(case.methods, case.predictions, strict=True), *more_files]
    sources = describe_sources(files, known=known)
    notes = [read_sidecar(path) for path in (case.reference, *case.predictions)]
    value = [__version__, convention, case.subject, [(each.role, each.sha256) for each in sources], notes, more]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest(), sources


def _by_subject(folder: Path, problems: list[str]) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: not a folder. With a folder as the reference, give the methods' folders too.")
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*tensor*.nii*")):
        if not any(part.startswith(".") for part in path.relative_to(folder).parts):
            subject = read_provenance(path).subject
            if subject is not None:
                found.setdefault(subject, []).append(path)
    several = {subject: paths for subject, paths in found.items() if len(paths) > 1}
    problems += [
        f"{folder}: {len(paths)} tensors of {subject} ({paths[0].name}, {paths[1].name}). Give a folder with one."
        for subject, paths in several.items()
    ]
    return {subject: paths[0] for subject, paths in found.items() if len(paths) == 1}


def _method_names(folders: Sequence[Path], found: Iterable[dict[str, Path]]) -> list[str]:
    """What the sidecars of a folder say; the folder's name where they differ or say what another is called."""
    said = []
    for folder, tensors in zip(folders, found, strict=True):
        methods = {read_provenance(path).method for path in tensors.values()}
        said.append(methods.pop() or folder.name if len(methods) == 1 else folder.name)
    repeated = {name for name, count in Counter([*said, REFERENCE]).items() if count > 1}
    names = [folder.resolve().name if name in repeated else name for folder, name in zip(folders, said, strict=True)]
    (name, count), *_ = Counter([*names, REFERENCE]).most_common(1)
    if count > 1:
        raise DataError(f"Two of the folders would both be called '{name}'. Rename one.")
    return names
