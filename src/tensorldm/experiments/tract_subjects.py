"""Virtual subjects whose bundles are known: from a folder that ``tensorldm cohort`` wrote, or made for the table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tensorldm.cohort.config import read_cohort
from tensorldm.cohort.layout import LAYOUTS
from tensorldm.cohort.sources import TEMPLATES, open_source
from tensorldm.cohort.writing import Plan, write_cohort
from tensorldm.errors import ConfigError, DataError
from tensorldm.experiments.subjects import StudySubject, Tell
from tensorldm.experiments.tract_tensors import FromScan, Making, TensorSource
from tensorldm.imaging.layouts import find_scans

VIRTUAL, TEMPLATE = "virtual", "template"
"""Folders of the cohorts that are made, and how their subjects' names begin."""
SPLIT: Final = "test"
"""Never an anatomy that a model was trained on."""
TEMPLATE_SUBJECTS: Final = 1
BUNDLES: Final = "bundles"
"""Folder of bundle masks in a subject's truth."""


@dataclass(frozen=True, eq=False)
class TractSubject:
    """A virtual subject with its known bundles."""

    name: str
    """In the table."""
    bundles: Path
    folder: Path
    """For its tractograms, its table and pictures."""
    tensors: TensorSource


@dataclass(frozen=True)
class Chosen:
    """Who is measured, and what there is to say of what is not."""

    subjects: list[TractSubject]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wanted:
    """Subjects to be made before they are measured."""

    virtual: int = 0
    """Procedural heads."""
    templates: Path | None = None
    """Folder of real anatomies, of which one subject is built."""
    changes: tuple[str, ...] = ()
    """To the settings of the preset ``cohort``."""
    seed: int = 0


def make_cohorts(wanted: Wanted, out: Path, *, workers: int, tell: Tell) -> list[Path]:
    """Write the subjects that are wanted, where they are missing; gives a folder for each kind."""
    if wanted.templates is not None and not wanted.templates.is_dir():
        raise ConfigError(f"--templates {wanted.templates}: there is no such folder. Give one of template anatomies.")
    kinds = {VIRTUAL: ("procedural", wanted.virtual)} if wanted.virtual else {}
    if wanted.templates is not None:
        kinds[TEMPLATE] = (f"{TEMPLATES}{wanted.templates}", TEMPLATE_SUBJECTS)
    settings = read_cohort("cohort", list(wanted.changes))
    for kind, (source, subjects) in kinds.items():
        plan = Plan(
            source=open_source(source, SPLIT, settings=settings, subjects=subjects, option="--templates "),
            source_name=source,
            split=SPLIT,
            settings=settings.settings,
            seed=wanted.seed,
            layout_name="bids",
            out=out / kind,
        )
        for label in write_cohort(plan, subjects, workers=min(workers, subjects)):
            tell(f"{kind} subject {label}")
    return [out / kind for kind in kinds]


def find_subjects(cohorts: Sequence[Path], out: Path, *, making: Making, most: int | None = None) -> list[TractSubject]:
    """The first subjects of every cohort, each with a folder of its own; cohorts are told apart by their names."""
    found = [subject for root in cohorts for subject in list(_subjects_of(root, out, making))[:most]]
    names = [subject.name for subject in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"Two subjects would both be called '{twice}'. Rename one of the cohorts' folders.")
    return found


def _subjects_of(root: Path, out: Path, making: Making) -> Iterator[TractSubject]:
    for scan in find_scans(root):
        for layout in LAYOUTS.values():
            inner, prefix = layout.truth_prefix(scan.name)
            truth = root / layout.truth / scan.name / inner
            if (truth / BUNDLES).is_dir():
                name = f"{root.resolve().name}-{scan.name}"
                files = replace(scan, mask=truth / f"{prefix}desc-brain_mask.nii.gz")
                subject = StudySubject(root.name, name, scan.person, files, resample=False)
                source = FromScan(subject, out / name, making)
                yield TractSubject(name, truth / BUNDLES, out / name, source)
                break
        else:
            raise DataError(
                f"{root}: no bundle masks of {scan.name} in its truth. Give folders that 'tensorldm cohort' wrote."
            )
