"""The subjects of a study as files that every method reads: series, gradients, mask, and whose head it is.

Virtual subjects are written first, in HCP's layout. Everything is checked by headers before a voxel is read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorldm.cohort.config import read_cohort
from tensorldm.cohort.layout import LAYOUTS, LayoutName
from tensorldm.cohort.manifest import person_behind
from tensorldm.cohort.sources import open_source
from tensorldm.cohort.writing import Plan, write_cohort
from tensorldm.data.selection import PAPER_SHELL, find_shell
from tensorldm.errors import DataError, about
from tensorldm.experiments.analytic import name_subjects
from tensorldm.experiments.config import GroupConfig, VirtualSubjects
from tensorldm.experiments.parts import Results
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.layouts import ScanFiles, find_scans, list_files
from tensorldm.imaging.nifti import read_header

Tell = Callable[[str], None]
LEAST_DIRECTIONS = 6
TRUTH = "desc-clean_tensor.nii.gz"
VIRTUAL_LAYOUT: Final[LayoutName] = "hcp"


@dataclass(frozen=True, eq=False)
class StudySubject:
    """One scan of a study."""

    group: str
    name: str
    anatomy: str
    """Whose head it is; empty where nobody says."""
    files: ScanFiles
    resample: bool
    truth: Path | None = None
    """The noise-free tensor of a virtual subject."""

    @property
    def identity(self) -> dict[str, str | int | bool]:
        """What tells this scan from another of the same name, without reading it."""
        state = self.files.dwi.stat()
        return {"name": self.name, "bytes": state.st_size, "resample": self.resample}


def gather(
    name: str, group: GroupConfig, *, results: Results, seed: int, tell: Tell, workers: int = 1
) -> list[StudySubject]:
    """The subjects of a group; virtual ones are made where they are missing, scans are checked by their headers."""
    if group.virtual is not None:
        scans = _virtual(name, group.virtual, out=_cohort_folder(results, name), seed=seed, tell=tell, workers=workers)
    else:
        scans = [each for path in _in_order(group.scans) for each in path]
    subjects = [_subject(name, scan, group) for scan in scans]
    for subject in subjects:
        with about(subject.files.dwi):
            _check(subject)
    return subjects


def truth_folder(results: Results, group: str, *, subject: str) -> Path:
    """Where a virtual subject's truth stands, whether it is there or not."""
    layout = LAYOUTS[VIRTUAL_LAYOUT]
    inner, _ = layout.truth_prefix(subject)
    return _cohort_folder(results, group) / layout.truth / subject / inner


def _cohort_folder(results: Results, group: str) -> Path:
    return results.root / "cohorts" / group


def _virtual(name: str, wanted: VirtualSubjects, *, out: Path, seed: int, tell: Tell, workers: int) -> list[ScanFiles]:
    settings = read_cohort(wanted.config, wanted.changes)
    plan = Plan(
        source=open_source(wanted.source, wanted.split, settings=settings, subjects=wanted.subjects),
        source_name=wanted.source,
        split=wanted.split,
        settings=settings.settings,
        seed=seed,
        layout_name=VIRTUAL_LAYOUT,
        out=out,
    )
    for count, label in enumerate(write_cohort(plan, wanted.subjects, workers=workers), start=1):
        tell(f"{name}: virtual subject {label} ({count} of {wanted.subjects})")
    labels = {plan.layout.label(index) for index in range(wanted.subjects)}
    return [scan for scan in find_scans(out) if scan.name in labels]


def _in_order(paths: Sequence[Path]) -> list[list[ScanFiles]]:
    """Every path's scans; files are named as ``tables analytic`` names them."""
    files = [path for path in paths if not path.is_dir()]
    names = dict(zip(files, name_subjects(files), strict=True))
    found = []
    for path in paths:
        if path.is_dir():
            found.append(find_scans(path))
            continue
        (scan,) = list_files([path])
        person = person_behind(names[path]) or ""
        found.append([ScanFiles(names[path], person, scan.dwi, scan.bval, scan.bvec, scan.mask, scan.grad_dev)])
    return found


def _subject(group: str, scan: ScanFiles, config: GroupConfig) -> StudySubject:
    space = read_header(scan.dwi).space
    truth = scan.dwi.parents[3] / "truth" / scan.name / TRUTH if config.virtual is not None else None
    resample = config.grid == "2mm" and len(working_grid(space).steps) > 1
    return StudySubject(group, scan.name, scan.person, scan, resample, truth)


def _check(subject: StudySubject) -> None:
    gradients = read_gradients(subject.files.dwi, bval=subject.files.bval, bvec=subject.files.bvec)
    directions = len(find_shell(gradients, PAPER_SHELL).indices)
    if directions < LEAST_DIRECTIONS:
        raise DataError(
            f"{directions} directions at b={PAPER_SHELL:g}, too few for a reference tensor. "
            f"Give a series with at least {LEAST_DIRECTIONS}, or leave this one out."
        )
