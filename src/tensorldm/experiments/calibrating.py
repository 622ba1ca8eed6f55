"""A bundle's intervals calibrated: factors from validation anatomies, coverage from test anatomies and real scans.

Samples are drawn by the engine that reconstructs, judged at once and let go. What was judged is kept in OUT/observed
until the bundle stands, so that the same command goes on where it was stopped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import torch

from tensorldm import __version__
from tensorldm.bundle import INDEX, IntervalFactors, read_info
from tensorldm.bundle_files import copy_with_intervals
from tensorldm.cohort.anatomy import TISSUES
from tensorldm.cohort.config import CohortConfig
from tensorldm.errors import ConfigError, DataError
from tensorldm.experiments.coverage import REAL, CoverageRow, Observed, coverage_rows, to_csv
from tensorldm.experiments.coverage_text import describe_factors, to_markdown, verdict
from tensorldm.experiments.kept_observations import KeptObservations
from tensorldm.experiments.known_scans import CLEAN, KnownScan, VirtualSplit, open_split
from tensorldm.experiments.observing import Observer, Tell
from tensorldm.experiments.record import RunRecord
from tensorldm.imaging.atomic import write_json, write_text
from tensorldm.reconstruct.calibration import Quantity, fit_calibration
from tensorldm.reconstruct.choice import choose
from tensorldm.reconstruct.outputs import check_writable
from tensorldm.reconstruct.settings import DEFAULT_SAMPLES, Settings
from tensorldm.reconstruct.uncertainty import LEVEL, Calibration
from tensorldm.work.folder import writing_to

Factors = Literal["auto", "one", "by-tissue"]
FACTORS: Final = ("auto", "one", "by-tissue")
ROOM: Final = (0.80, 0.97)
"""[choice: factors-by-tissue] One factor is enough while 90 % intervals cover this share of each tissue on validation
anatomies: the 75 to 98 % that are promised on others, with room for the difference."""
TABLE, TEXT, RECORD = "coverage.csv", "coverage.md", "coverage.json"
OBSERVED: Final = "observed"
"""Folder in OUT of the subjects that have been judged; it goes when the bundle stands."""


@dataclass(frozen=True)
class Task:
    """What to calibrate, with which subjects, into which folder."""

    bundle: Path
    data: str
    cohort: CohortConfig
    subjects: int
    """Of each split."""
    settings: Settings
    device: torch.device
    out: Path
    factors: Factors = "auto"
    scans: tuple[Path, ...] = ()

    @property
    def num_samples(self) -> int:
        """Of each subject."""
        return self.settings.samples or DEFAULT_SAMPLES


class Splits(NamedTuple):
    """Virtual subjects that are known by name; nothing has been drawn."""

    validation: VirtualSplit
    test: VirtualSplit


class Outcome(NamedTuple):
    """What was found and written."""

    calibration: Calibration
    rows: list[CoverageRow]


def check_task(task: Task) -> Splits:
    """Refuse what can be refused before a model is loaded."""
    if task.factors not in FACTORS:
        raise ConfigError(f"--factors is '{task.factors}'; give one of {', '.join(FACTORS)}.")
    if task.num_samples < 2:
        raise ConfigError("--samples is 1, and one sample has no spread. Give 2 or more.")
    if not choose(model=task.bundle).traits.samples:
        stages = read_info(task.bundle).card.stages
        raise DataError(
            f"{task.bundle}: it draws no samples, only an expected tensor (trained stages: "
            f"{', '.join(map(str, stages))}). Train Stage 4 first."
        )
    if (task.out / INDEX).exists():
        raise DataError(f"{task.out}: there is a bundle already. Give a new folder with --out.")
    _check_scans(task.scans)
    check_writable(task.out)
    split_of = partial(open_split, task.data, cohort=task.cohort, number=task.subjects, seed=task.settings.seed)
    return Splits(split_of("validation"), split_of("test"))


def calibrate(task: Task, splits: Splits, *, record: RunRecord, tell: Tell) -> Outcome:
    """Fit, measure and write the new bundle with its tables; what an earlier run has judged is not drawn again."""
    with writing_to(task.out):
        kept = KeptObservations(task.out / OBSERVED, _made_with(task))
        load = partial(choose(model=task.bundle).load, task.settings, device=task.device)
        observer = Observer(load, task.device, kept, tell)
        validation = observer.observe_split(splits.validation)
        calibration = fit_factors(validation, task.factors, source=_describe(task, validation))
        rows = coverage_rows("validation", validation, calibration)
        subjects = {"validation": _names(validation)}
        del validation
        test = observer.observe_split(splits.test)
        rows += coverage_rows("test", test, calibration)
        subjects["test"] = _names(test)
        del test
        for scan in _real_scans(task.scans):
            real = [observer.observe_series(scan)]
            rows += coverage_rows(f"{REAL}{scan.name}", real, calibration)
            subjects[f"{REAL}{scan.name}"] = _names(real)
        _write(task, Outcome(calibration, rows), subjects, record)
        kept.clear()
    return Outcome(calibration, rows)


def fit_factors(subjects: Sequence[Observed], factors: Factors, *, source: str) -> Calibration:
    """Factors for the clean tensor at the level of the written maps; by tissue where one of them is not enough."""
    clean = [subject.judged[CLEAN] for subject in subjects]
    one = fit_calibration(clean, level=LEVEL, source=source)
    wanted: tuple[Quantity, ...] = ("fa", "md")
    if factors == "one":
        return one
    if factors == "auto":
        rows = coverage_rows("validation", subjects, one)
        outside = {
            row.quantity
            for row in rows
            if row.truth == CLEAN and row.level != LEVEL and row.region in TISSUES
            if not ROOM[0] <= row.covered <= ROOM[1]
        }
        wanted = tuple(quantity for quantity in wanted if quantity in outside)
    return fit_calibration(clean, level=LEVEL, source=source, by_tissue=wanted)


def _check_scans(paths: Sequence[Path]) -> None:
    if paths:
        from tensorldm.experiments.analytic import name_subjects
        from tensorldm.experiments.known_series import check_known_series

        name_subjects(paths)
        for path in paths:
            check_known_series(path)


def _real_scans(paths: Sequence[Path]) -> Iterable[KnownScan]:
    if paths:
        from tensorldm.experiments.analytic import name_subjects
        from tensorldm.experiments.known_series import read_known_series

        yield from map(read_known_series, paths, name_subjects(paths))


def _made_with(task: Task) -> dict[str, Any]:
    """All that decides what is drawn of a subject and how it is judged; fitting comes after and may differ."""
    return {
        "program": __version__,
        "weights": read_info(task.bundle).weights_sha256,
        "data": task.data,
        "cohort": task.cohort.model_dump(mode="json"),
        "seed": task.settings.seed,
        "samples": task.num_samples,
        "steps": task.settings.steps,
        "sampler": task.settings.sampler,
        "device": task.device.type,
        "level": LEVEL,
    }


def _describe(task: Task, subjects: Sequence[Observed]) -> str:
    anatomies = len({subject.anatomy for subject in subjects})
    return (
        f"{len(subjects)} virtual subjects of {anatomies} validation anatomies, {task.num_samples} samples, "
        f"{task.settings.steps} steps of {task.settings.sampler}"
    )


def _names(subjects: Sequence[Observed]) -> list[dict[str, Any]]:
    return [
        {
            "Name": subject.name,
            "Anatomy": subject.anatomy,
            "Directions": subject.num_directions,
            "Voxels": len(subject.tissue),
        }
        for subject in subjects
    ]


def _write(task: Task, outcome: Outcome, subjects: dict[str, list[dict[str, Any]]], record: RunRecord) -> None:
    """The tables, then the bundle, its index last: a folder with an index is whole."""
    factors = IntervalFactors(**asdict(outcome.calibration))
    text = [
        "# Coverage of the intervals",
        record.to_markdown(),
        f"Factors fitted on {outcome.calibration.source}, at {LEVEL:.0%}, for the clean tensor:",
        "\n".join(f"- {line}" for line in describe_factors(outcome.calibration)),
        verdict(outcome.rows),
        to_markdown(outcome.rows),
    ]
    values = {
        "WeightsSHA256": read_info(task.bundle).weights_sha256,
        "Level": LEVEL,
        "Factors": factors.model_dump(mode="json"),
        "Samples": task.num_samples,
        "Steps": task.settings.steps,
        "Sampler": task.settings.sampler,
        "Cohort": task.cohort.model_dump(mode="json"),
        "Subjects": subjects,
        "Coverage": [asdict(row) | {"promised": row.goal, "met": row.met} for row in outcome.rows],
        "Run": record.to_json(),
    }
    write_text(task.out / TABLE, to_csv(outcome.rows))
    write_text(task.out / TEXT, "\n\n".join(text) + "\n")
    write_json(task.out / RECORD, values)
    copy_with_intervals(task.bundle, task.out, intervals=factors)
