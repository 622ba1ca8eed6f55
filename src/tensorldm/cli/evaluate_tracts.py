"""``tensorldm evaluate --tracts``: the bundles of one subject, or of every subject of a cohort."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tensorldm.cli.crew import ended_gently, progress_of
from tensorldm.cli.evaluate_cohort import gather_outcomes, tell_outcomes

if TYPE_CHECKING:
    from rich.console import Console

    from tensorldm.evaluation.cohort import Case, Cases
    from tensorldm.evaluation.table import Row
    from tensorldm.evaluation.tract_masks import MaskSource
    from tensorldm.evaluation.tracts import TractPlan
    from tensorldm.work.crew import Crew


@dataclass(frozen=True)
class TractWish:
    """What was asked for with ``--tracts``, looked at before anything is measured."""

    masks: "MaskSource"
    plan: "TractPlan"
    folder: Path
    """Of tractograms, bundles and pictures."""
    convention: str | None

    def of_one(
        self,
        console: "Console",
        reference: Path,
        predictions: Sequence[Path],
        *,
        mask: Path | None,
        subject: str | None,
    ) -> "list[Row]":
        """Track and measure one subject, show the tables and draw the pictures; gives the rows."""
        from tensorldm.cli.tract_drawing import draw_tracts, show_tracts
        from tensorldm.evaluation.tracts import evaluate_tracts
        from tensorldm.work.folder import writing_to

        with ended_gently(), writing_to(self.folder), console.status("tracking") as status:
            result = evaluate_tracts(
                reference,
                predictions,
                bundles=self.masks,
                out=self.folder,
                plan=self.plan,
                mask=mask,
                convention=self.convention,
                subject=subject,
                tell=status.update,
            )
        show_tracts(console, result.rows)
        for picture in draw_tracts(self.folder, result):
            console.print(f"picture: {picture}", markup=False, soft_wrap=True)
        return result.rows

    def of_many(self, console: "Console", found: "Cases", *, crew: "Crew") -> "tuple[list[Row], bool]":
        """The same for every subject of a cohort, shared out to workers; also whether some could not be measured."""
        from tensorldm.cli.tract_drawing import draw_means, draw_quietly, show_tracts
        from tensorldm.evaluation.tract_cohort import TractCohortTask, evaluate_tract_cases
        from tensorldm.tracts.engine import open_engine
        from tensorldm.work.folder import writing_to

        outcomes, engine = [], open_engine(self.plan.engine).version
        with ended_gently(), writing_to(self.folder), progress_of("tracking", len(found.cases)) as bar:
            task = TractCohortTask(
                self.masks, self.folder, self.plan, self.convention, draw_quietly, engine, tell=bar.update
            )
            with closing(evaluate_tract_cases(found.cases, task, crew=crew)) as ended:
                for outcome in ended:
                    outcomes.append(outcome)
                    bar.advance(outcome.subject)
            rows, problems = gather_outcomes(outcomes, ())
            pictures = draw_means(self.folder, rows)
        tell_outcomes(outcomes, problems, "subjects' bundles were measured before and have not changed.")
        show_tracts(console, rows)
        for picture in pictures:
            console.print(f"picture: {picture}", markup=False, soft_wrap=True)
        return rows, bool(problems)


def wish_for_tracts(
    given: Path, *, plan: "TractPlan", table: Path, convention: str | None, cases: "Sequence[Case] | None"
) -> TractWish:
    """Look at masks and programs; of a cohort at least one subject must have masks, each other is told later."""
    from tensorldm.errors import TensorldmError
    from tensorldm.evaluation.tract_masks import open_masks
    from tensorldm.tracts.engine import open_engine

    open_engine(plan.engine)
    masks = open_masks(given)
    problems: list[TensorldmError] = []
    for subject in [None] if cases is None else [case.subject for case in cases]:
        try:
            (masks if subject is None else masks.of_subject(subject)).files(plan.names)
            break
        except TensorldmError as error:
            problems.append(error)
    else:
        raise problems[0]
    return TractWish(masks, plan, table.with_name(f"{table.stem}_tracts"), convention)
