"""Bundles of many subjects and methods: a subject a job, shared out to workers, remembered when it is measured.

What is measured is written down beside the tractograms; the same command again measures only what is new or changed,
and goes on with tractograms where they stopped.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tensorldm.data.store import safe_name
from tensorldm.errors import TensorldmError
from tensorldm.evaluation.cohort import Case, Measured, Outcome, describe_inputs
from tensorldm.evaluation.tract_masks import MaskSource
from tensorldm.evaluation.tracts import Draw, Tell, TractPlan, evaluate_tracts
from tensorldm.work.bugs import explain
from tensorldm.work.crew import Crew, Done, perform, silent
from tensorldm.work.journal import Journal


@dataclass(frozen=True, eq=False)
class TractCohortTask:
    """How the bundles of every subject are measured, here or in another process."""

    masks: MaskSource
    out: Path
    """Folder of the tractograms; each subject has its own below it."""
    plan: TractPlan
    convention: str | None
    draw: Draw
    engine: str
    """Name and version of what tracks."""
    tell: Tell = silent

    def __call__(self, case: Case) -> Outcome:
        """Measure one subject and write it down; a subject that fails keeps no other back."""
        try:
            key, sources = self.inputs(case)
            result = evaluate_tracts(
                case.reference,
                case.predictions,
                bundles=self.masks.of_subject(case.subject),
                out=self.folder(case),
                plan=self.plan,
                convention=self.convention,
                subject=case.subject,
                methods=case.methods,
                tell=lambda words: self.tell(f"{case.subject}: {words}"),
            )
            self.draw(self.folder(case), result)
            entry = Measured(subject=case.subject, inputs_sha256=key, sources=sources, rows=tuple(result.rows))
            self.journal.write(case.subject, entry)
        except Exception as error:
            problem, traceback = explain(error, where=case.reference)
            return Outcome(case.subject, (), f"{case.subject}: {problem}", traceback)
        return Outcome(case.subject, tuple(result.rows))

    def folder(self, case: Case) -> Path:
        """Of a subject's tractograms, bundles and pictures."""
        return self.out / safe_name(case.subject)

    @property
    def journal(self) -> Journal[Measured]:
        """What is measured already."""
        return Journal(self.out / ".journal", Measured)

    def kept(self, case: Case) -> Outcome | None:
        """What an earlier run measured from the same files in the same way, if it did."""
        known = self.journal.entry(case.subject)
        try:
            same = known is not None and known.inputs_sha256 == self.inputs(case, known)[0]
        except TensorldmError:
            return None  # the worker meets it again, and tells it
        return Outcome(case.subject, known.rows, kept=True) if known is not None and same else None

    def inputs(self, case: Case, known: Measured | None = None) -> tuple[str, Any]:
        """One hash of all that decides a subject's figures, and the files that went into it."""
        masks, plan = self.masks.of_subject(case.subject), replace(self.plan, workers=1)
        decides = [asdict(plan), self.engine, None if masks.program is None else masks.program.version]
        files = [(path.name, path) for path in masks.files(plan.names)]
        sources = () if known is None else known.sources
        return describe_inputs(case, self.convention, more_files=files, more=decides, known=sources)


def evaluate_tract_cases(cases: Sequence[Case], task: TractCohortTask, *, crew: Crew) -> Generator[Outcome, None, None]:
    """Measure every subject whose bundles the journal does not have; outcomes as they are known."""
    missing = []
    for case in cases:
        known = task.kept(case)
        if known is None:
            missing.append(case)
        else:
            yield known
    tell = task.tell
    if not crew.stays_here(len(missing)):
        # Where each subject has a process, one thread grows its streamlines; they do not depend on how many do.
        task = replace(task, plan=replace(task.plan, workers=1), tell=silent)
    with closing(perform(task, missing, crew=crew, tell=tell)) as ended:
        for each in ended:
            if isinstance(each, Done):
                yield each.value
            else:
                yield Outcome(each.job.subject, problem=f"{each.job.subject}: {each.reason}")
