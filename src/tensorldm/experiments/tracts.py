"""Do the tensors lead to the right fibres? Every method on virtual subjects whose bundles are known.

The reference is fitted to the whole series, bundle masks are the truth's; tensors are made, or a study has kept them.
Subjects run in parallel; a run that was stopped goes on where it was.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tensorldm.evaluation.summary import describe_anatomies
from tensorldm.evaluation.table import Row, write_table
from tensorldm.evaluation.tract_masks import MaskSource
from tensorldm.evaluation.tract_summary import describe_measures, describe_missing, summarise_tracts
from tensorldm.evaluation.tracts import Draw, TractPlan, TractResult, evaluate_tracts
from tensorldm.experiments.record import RunRecord
from tensorldm.experiments.tract_subjects import TractSubject
from tensorldm.imaging.atomic import write_json, write_text
from tensorldm.tracts.engine import open_engine
from tensorldm.work.bugs import explain
from tensorldm.work.crew import Crew, Done, perform, silent

READING: Final = (
    "Whole-brain tractography of every tensor with the same seeds and settings; bundles are cut with the subject's own "
    "masks, the same for all methods. `reference again` is the reference tracked with another seed: the noise floor, "
    "below which no figure means anything. A bundle that was not found has no distance, so `found` counts as much as "
    "`mean`."
)
TRACEBACK: Final = "error.txt"
"""In the folder of a subject that met a bug."""
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one subject."""

    rows: tuple[Row, ...] = ()
    problem: str = ""
    """One sentence, if it could not be measured."""


@dataclass(frozen=True, eq=False)
class TractTask:
    """What is done with every subject, here or in another process; a subject that fails keeps no other back."""

    plan: TractPlan
    draw: Draw
    tell: Tell = silent

    def __call__(self, each: TractSubject) -> Outcome:
        """Measure one subject; its table and pictures are in its folder when it is done."""
        try:
            result = run_subject(each, self.plan, tell=self._about(each))
            self.draw(each.folder, result)
        except Exception as error:
            problem, traceback = explain(error, where=each.folder / TRACEBACK)
            if traceback:
                write_text(each.folder / TRACEBACK, traceback)
            return Outcome((), f"{each.name}: {problem}")
        return Outcome(tuple(result.rows))

    def _about(self, each: TractSubject) -> Tell:
        return lambda words: self.tell(f"{each.name}: {words}")


def compare_tracts(subjects: Sequence[TractSubject], task: TractTask, *, crew: Crew, tell: Tell) -> list[Outcome]:
    """Reconstruct, track and measure every subject, several at once; outcomes in the order of the subjects."""
    open_engine(task.plan.engine)  # a missing program is told before anything is fitted
    # Where each subject has a process, one thread grows its streamlines; they do not depend on how many do.
    apart = replace(task, plan=replace(task.plan, workers=1))
    task = replace(task, tell=tell) if crew.stays_here(len(subjects)) else apart
    outcomes: dict[str, Outcome] = {}
    with closing(perform(task, subjects, crew=crew, tell=tell)) as ended:
        for each in ended:
            name = each.job.name
            outcomes[name] = each.value if isinstance(each, Done) else Outcome((), f"{name}: {each.reason}")
            tell(f"{name} is done, {len(outcomes)} of {len(subjects)}")
    return [outcomes[each.name] for each in subjects]


def run_subject(each: TractSubject, plan: TractPlan, *, tell: Tell) -> TractResult:
    """One subject: tensors as files, then everything from these."""
    tensors = each.tensors(tell)
    result = evaluate_tracts(
        tensors.reference,
        list(tensors.methods.values()),
        bundles=MaskSource(each.bundles),
        out=each.folder / "tracts",
        plan=plan,
        mask=tensors.mask,
        methods=list(tensors.methods),
        subject=each.name,
        tell=tell,
    )
    write_table(each.folder / "table.csv", result.rows)
    return result


def write_results(
    rows: Sequence[Row], out: Path, *, record: RunRecord, plan: TractPlan, remarks: Sequence[str] = ()
) -> str:
    """The long table, its Markdown and the record of the run; returns the Markdown."""
    text = to_markdown(rows, record, plan=plan, remarks=remarks)
    write_table(out / "table.csv", rows)
    write_text(out / "table.md", text)
    write_json(out / "run.json", record.to_json())
    return text


def to_markdown(rows: Sequence[Row], record: RunRecord, *, plan: TractPlan, remarks: Sequence[str] = ()) -> str:
    """Everything that is needed to read the figures and to make them again."""
    settings = ", ".join(f"{key} {value}" for key, value in plan.settings.to_json().items())
    engine = open_engine(plan.engine).version
    parts = ["## Tracts", record.to_markdown(), READING, f"{describe_anatomies(rows)}. {engine}: {settings}."]
    parts += [table.to_markdown() for table in summarise_tracts(rows)]
    parts += ["\n".join(f"- {line}." for line in (*remarks, *describe_missing(rows), *describe_measures()))]
    return "\n\n".join(parts) + "\n"
