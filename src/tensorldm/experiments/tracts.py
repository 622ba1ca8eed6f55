"""Do the tensors lead to the right fibres? Every method on virtual subjects whose bundles are known.

Subjects come from folders that ``tensorldm cohort`` wrote: the reference is fitted to the whole series, bundle masks
and brain mask are the truth's. Subjects run in parallel; a run that was stopped goes on where it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from tensorldm.cohort.layout import LAYOUTS
from tensorldm.errors import DataError, TensorldmError
from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.summary import describe_anatomies
from tensorldm.evaluation.table import Row, write_table
from tensorldm.evaluation.tract_summary import describe_measures, describe_missing, summarise_tracts
from tensorldm.evaluation.tracts import TractPlan, TractResult, evaluate_tracts
from tensorldm.experiments.config import MethodConfig
from tensorldm.experiments.loading import load
from tensorldm.experiments.methods import Workbench, write_method, write_reference
from tensorldm.experiments.record import RunRecord
from tensorldm.experiments.subjects import StudySubject
from tensorldm.imaging.atomic import write_json, write_text
from tensorldm.imaging.layouts import find_scans
from tensorldm.tracts.engine import open_engine
from tensorldm.work.crew import Crew, Done, perform, silent

READING: Final = (
    "Whole-brain tractography of every tensor with the same seeds and settings; bundles are cut with the subject's own "
    "masks, the same for all methods. `reference again` is the reference tracked with another seed: the noise floor, "
    "below which no figure means anything. A bundle that was not found has no distance, so `found` counts as much as "
    "`mean`."
)
Tell = Callable[[str], None]
Draw = Callable[[Path, TractResult], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one subject."""

    rows: tuple[Row, ...] = ()
    problem: str = ""
    """One sentence, if it could not be measured."""


@dataclass(frozen=True)
class TractSubject:
    """A virtual subject with its known bundles."""

    subject: StudySubject
    bundles: Path
    folder: Path


def find_subjects(cohorts: Sequence[Path], out: Path, *, most: int | None = None) -> list[TractSubject]:
    """The first subjects of every cohort, each with a folder of its own; cohorts are told apart by their names."""
    found = [subject for root in cohorts for subject in list(_subjects_of(root, out))[:most]]
    names = [subject.subject.name for subject in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"Two subjects would both be called '{twice}'. Rename one of the cohorts' folders.")
    return found


@dataclass(frozen=True, eq=False)
class TractTask:
    """What is done with every subject, here or in another process; a subject that fails keeps no other back."""

    methods: dict[str, MethodConfig]
    plan: TractPlan
    device: torch.device
    draw: Draw
    tell: Tell = silent

    def __call__(self, each: TractSubject) -> Outcome:
        """Measure one subject; its table and pictures are in its folder when it is done."""
        try:
            result = run_subject(each, self.methods, plan=self.plan, device=self.device, tell=self._about(each))
        except TensorldmError as error:
            return Outcome((), f"{each.subject.name}: {error}")
        self.draw(each.folder, result)
        return Outcome(tuple(result.rows))

    def _about(self, each: TractSubject) -> Tell:
        return lambda words: self.tell(f"{each.subject.name}: {words}")


def compare_tracts(subjects: Sequence[TractSubject], task: TractTask, *, crew: Crew, tell: Tell) -> list[Outcome]:
    """Reconstruct, track and measure every subject, several at once; outcomes in the order of the subjects."""
    open_engine(task.plan.engine)  # a missing program is told before anything is fitted
    # Where each subject has a process, one thread grows its streamlines; they do not depend on how many do.
    apart = replace(task, plan=replace(task.plan, workers=1))
    task = replace(task, tell=tell) if crew.stays_here(len(subjects)) else apart
    outcomes: dict[str, Outcome] = {}
    with closing(perform(task, subjects, crew=crew, tell=tell)) as ended:
        for each in ended:
            name = each.job.subject.name
            outcomes[name] = each.value if isinstance(each, Done) else Outcome((), f"{name}: {each.reason}")
            tell(f"{name} is done, {len(outcomes)} of {len(subjects)}")
    return [outcomes[each.subject.name] for each in subjects]


def run_subject(
    each: TractSubject, methods: dict[str, MethodConfig], *, plan: TractPlan, device: torch.device, tell: Tell
) -> TractResult:
    """One subject: tensors as files, then everything from these."""
    tell("fitting the tensors")
    loaded, bench = load(each.subject, each.folder), Workbench(device)
    reference = each.folder / f"{REFERENCE}.nii.gz"
    write_reference(loaded, "ols", reference)
    written = []
    for label, config in methods.items():
        tell(label)
        path = each.folder / f"{label}.nii.gz"
        write_method(loaded, config, path, label=label, seed=plan.settings.seed, bench=bench)
        written.append(path)
    result = evaluate_tracts(
        reference,
        written,
        bundles=each.bundles,
        out=each.folder / "tracts",
        plan=plan,
        mask=loaded.files.mask,
        subject=each.subject.name,
        tell=tell,
    )
    write_table(each.folder / "table.csv", result.rows)
    return result


def write_results(rows: Sequence[Row], out: Path, *, record: RunRecord, plan: TractPlan) -> str:
    """The long table, its Markdown and the record of the run; returns the Markdown."""
    text = to_markdown(rows, record, plan)
    write_table(out / "table.csv", rows)
    write_text(out / "table.md", text)
    write_json(out / "run.json", record.to_json())
    return text


def to_markdown(rows: Sequence[Row], record: RunRecord, plan: TractPlan) -> str:
    """Everything that is needed to read the figures and to make them again."""
    settings = ", ".join(f"{key} {value}" for key, value in plan.settings.to_json().items())
    engine = open_engine(plan.engine).version
    parts = ["## Tracts", record.to_markdown(), READING, f"{describe_anatomies(rows)}. {engine}: {settings}."]
    parts += [table.to_markdown() for table in summarise_tracts(rows)]
    parts += ["\n".join(f"- {line}." for line in (*describe_missing(rows), *describe_measures()))]
    return "\n\n".join(parts) + "\n"


def _subjects_of(root: Path, out: Path) -> Iterator[TractSubject]:
    for scan in find_scans(root):
        for layout in LAYOUTS.values():
            inner, prefix = layout.truth_prefix(scan.name)
            truth = root / layout.truth / scan.name / inner
            if (truth / "bundles").is_dir():
                name = f"{root.resolve().name}-{scan.name}"
                files = replace(scan, mask=truth / f"{prefix}desc-brain_mask.nii.gz")
                subject = StudySubject(root.name, name, scan.person, files, resample=False)
                yield TractSubject(subject, truth / "bundles", out / name)
                break
        else:
            raise DataError(
                f"{root}: no bundle masks of {scan.name} in its truth. Give folders that 'tensorldm cohort' wrote."
            )
