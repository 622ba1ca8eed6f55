"""The first row of truth: analytic methods and small least-squares fits against the fit from the whole series.

Each series is used on its own grid, unresampled. Every tensor is written first and measured from its file, as any
method of anyone's would be.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from tensorldm.baselines.analytic import ANALYTIC, REFERENCE
from tensorldm.baselines.method import Method
from tensorldm.baselines.scan import Scan, read_scan
from tensorldm.cohort.manifest import person_behind
from tensorldm.data.selection import select_axes
from tensorldm.dti.fit import check_determined
from tensorldm.errors import DataError, about
from tensorldm.evaluation.evaluate import evaluate_files
from tensorldm.evaluation.summary import describe_anatomies, describe_subjects, summarise
from tensorldm.evaluation.table import Row, write_table
from tensorldm.experiments.record import RunRecord
from tensorldm.imaging.atomic import write_json, write_text
from tensorldm.imaging.flips import check_flips
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.layouts import COMMON_NAMES
from tensorldm.imaging.nifti import stem, write_mask
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.imaging.volume import Volume
from tensorldm.metrics import ranges

READING = (
    "The reference is an ordinary least-squares fit to every b=0 and direction of the series, on its own grid. Every "
    "method uses volumes that the reference uses too, as in the paper, and so shares some of its noise: a fit from "
    "most of the series looks better than it is, and where `ols-12` has all the directions there are, only the b=0 "
    "volumes still differ. Signals below a thousandth of the median b=0 are raised to it, for reference and methods "
    "alike."
)


@dataclass(frozen=True)
class SubjectResult:
    """One series measured: its rows, and what is worth saying of its scan in words."""

    subject: str
    rows: list[Row]
    remarks: list[str]


def compare_analytic(
    scans: Sequence[Path], out: Path, *, record: RunRecord, tell: Callable[[str], None]
) -> list[SubjectResult]:
    """Reconstruct every series with every analytic method into ``out`` and measure it against its whole fit.

    Gradients of all series are checked before the first is read. ``tell`` hears of each step.
    """
    names = name_subjects(scans)
    for path in scans:
        select_axes_of(path)
        _check_reference_of(path)
    results = []
    for path, subject in zip(scans, names, strict=True):
        tell(f"{subject}: reading the series and finding the brain")
        results.append(_compare_one(path, subject, out / subject, tell))
    rows = [row for result in results for row in result.rows]
    write_table(out / "table.csv", rows)
    write_text(out / "table.md", to_markdown(results, record))
    write_json(out / "run.json", record.to_json())
    return results


def name_subjects(scans: Sequence[Path]) -> list[str]:
    """What to call each series: its file's name, or its folder's where that says nothing."""
    names = [path.resolve().parent.name if stem(path).lower() in COMMON_NAMES else stem(path) for path in scans]
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"Two series would both be called '{name}'. Rename a file or its folder.")
    return names


def select_axes_of(path: Path) -> tuple[int, ...]:
    """The four volumes of a series that the sparse methods may see; the file is named if there are none."""
    try:
        return select_axes(read_gradients(path)).volumes
    except DataError as error:
        named = str(error) if str(path) in str(error) else f"{path}: {error}"
        raise DataError(named) from error


def _check_reference_of(path: Path) -> None:
    """Refuse a series whose whole fit does not determine a tensor: there would be nothing to measure against."""
    gradients = read_gradients(path)
    with about(path):
        check_determined(torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions))


def _compare_one(path: Path, subject: str, folder: Path, tell: Callable[[str], None]) -> SubjectResult:
    scan = read_scan(path)
    write_mask(folder / "mask.nii.gz", scan.mask, space=scan.space)
    _write_estimate(REFERENCE, scan, subject, folder / "reference.nii.gz")
    remarks = [_describe_axes(scan), _check_gradients(scan)]
    written = []
    for method in ANALYTIC.values():
        tell(f"{subject}: {method.name}")
        try:
            volumes = _write_estimate(method, scan, subject, folder / f"{method.name}.nii.gz")
        except DataError as error:
            remarks.append(f"{method.name} is missing: {error}")
            continue
        remarks.append(f"{method.name} used volumes {', '.join(map(str, volumes))}.")
        written.append(folder / f"{method.name}.nii.gz")
    tell(f"{subject}: measuring")
    return SubjectResult(subject, evaluate_files(folder / "reference.nii.gz", written, subject=subject), remarks)


def _write_estimate(method: Method, scan: Scan, subject: str, path: Path) -> tuple[int, ...]:
    estimate = method.reconstruct(scan)
    origin = Provenance(
        method.name, subject, path.with_name("mask.nii.gz"), estimate.volumes, anatomy=person_behind(subject)
    )
    write_tensor(path, estimate.packed, space=scan.space, notes=origin.notes_for(path))
    return estimate.volumes


def _check_gradients(scan: Scan) -> str:
    """A wrong gradient sign would make every figure wrong in the same way: it is looked for before anything is cut."""
    result = check_flips(Volume(scan.signal, scan.space), scan.gradients, mask=scan.mask)
    if result.status == "suspect":
        raise DataError(f"{result.message}. Mend the gradient files before they are compared with anything.")
    return f"Gradient check: {result.message}."


def _describe_axes(scan: Scan) -> str:
    chosen = select_axes(scan.gradients)
    angles = ", ".join(f"{angle:.1f}°" for angle in chosen.angles_degrees)
    size = " × ".join(f"{side:.3g}" for side in scan.space.voxel_size)
    return (
        f"Grid {' × '.join(map(str, scan.space.shape))}, {size} mm; {len(chosen.b0)} b=0 and "
        f"{len(chosen.shell_indices)} directions at b={chosen.shell:.0f} s/mm². "
        f"The directions nearest to x, y, z are {angles} off."
    )


def to_markdown(results: Sequence[SubjectResult], record: RunRecord) -> str:
    """The tables of every series, with all that is needed to read them and to make them again."""
    anatomies = describe_anatomies([row for result in results for row in result.rows])
    parts = ["## Analytic methods on real scans", record.to_markdown(), READING, f"{anatomies}."]
    for result in results:
        scan, *remarks = result.remarks
        parts += [f"### {result.subject}", scan, *(f"{line}." for line in describe_subjects(result.rows))]
        parts += [table.to_markdown() for table in summarise(result.rows)]
        parts += ["\n".join(f"- {remark}" for remark in remarks)]
    parts += ["### How it was measured", "\n".join(f"- {line}." for line in ranges.describe())]
    return "\n\n".join(parts) + "\n"
