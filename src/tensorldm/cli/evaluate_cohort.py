"""``tensorldm evaluate`` with folders: every subject of a cohort, shared out to workers, one table."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tensorldm.cli.crew import ended_gently, progress_of

if TYPE_CHECKING:
    from tensorldm.evaluation.cohort import Cases, Outcome
    from tensorldm.evaluation.table import Row
    from tensorldm.work.crew import Crew


def find_cohort(reference: Path, predictions: Sequence[Path]) -> "Cases":
    """The subjects that the folders share; none at all is an error."""
    from tensorldm.errors import DataError
    from tensorldm.evaluation.cohort import find_cases

    found = find_cases(reference, predictions)
    if not found.cases:
        raise DataError(
            found.problems[0] if found.problems else f"{reference}: no subject that the other folders have too."
        )
    return found


def evaluate_cohort(found: "Cases", out: Path, *, convention: str | None, crew: "Crew") -> tuple[list["Row"], bool]:
    """Measure every subject that the folders share; the rows, and whether something could not be measured."""
    from tensorldm.evaluation.cohort import evaluate_cases
    from tensorldm.evaluation.table import write_table
    from tensorldm.work.folder import writing_to

    outcomes = []
    with ended_gently(), writing_to(out), progress_of("measuring", len(found.cases)) as bar:
        with closing(evaluate_cases(found.cases, out, convention=convention, crew=crew, tell=bar.say)) as ended:
            for outcome in ended:
                outcomes.append(outcome)
                bar.advance(outcome.subject)
        rows, problems = gather_outcomes(outcomes, found.problems)
        write_table(out, rows)
    tell_outcomes(outcomes, problems, "subjects were measured before and have not changed.")
    return rows, bool(problems)


def gather_outcomes(outcomes: "list[Outcome]", problems: Sequence[str]) -> tuple[list["Row"], list[str]]:
    """Rows by subject, and every problem; no rows at all is an error. Tracebacks of bugs go to the standard error."""
    from tensorldm.errors import DataError

    outcomes.sort(key=lambda outcome: outcome.subject)
    rows = [row for outcome in outcomes for row in outcome.rows]
    problems = [*problems, *(outcome.problem for outcome in outcomes if outcome.problem)]
    typer.echo("".join(outcome.traceback for outcome in outcomes), nl=False, err=True)
    if not rows:
        raise DataError(problems[0])
    return rows, problems


def tell_outcomes(outcomes: "Sequence[Outcome]", problems: Sequence[str], words: str) -> None:
    """Every problem on the standard error; then how many were there already, with ``words`` behind the number."""
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    kept = sum(outcome.kept for outcome in outcomes)
    if kept:
        typer.echo(f"{kept} of {len(outcomes)} {words}")
