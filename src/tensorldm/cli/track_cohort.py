"""``tensorldm track`` with a folder: every tensor below it, shared out to workers."""

from contextlib import closing
from typing import TYPE_CHECKING

import typer

from tensorldm.cli.crew import ended_gently, progress_of

if TYPE_CHECKING:
    from tensorldm.evaluation.track_cohort import TrackTask
    from tensorldm.work.crew import Crew

SOME_FAILED = 1


def track_and_show(task: "TrackTask", crew: "Crew") -> None:
    """Track every reconstruction below the task's folder; a bad one stops nobody, and ends with exit code 1."""
    from tensorldm.errors import DataError
    from tensorldm.evaluation.track_cohort import track_cohort
    from tensorldm.report.reading import find_tensors
    from tensorldm.work.folder import writing_to

    tensors = find_tensors(task.root)
    if not tensors:
        raise DataError(
            f"{task.root}: no tensor image in or below it. Give a folder that 'tensorldm reconstruct' wrote."
        )
    problems, kept = [], 0
    with (
        ended_gently(),
        writing_to(task.out),
        progress_of("tracking", len(tensors)) as bar,
        closing(track_cohort(tensors, task, crew=crew, tell=bar.say)) as ended,
    ):
        for each in ended:
            bar.advance(each.name)
            kept += each.was_there
            if each.problem:
                problems.append(each.problem)
                typer.echo(f"{each.traceback}error: {each.problem}", err=True)
            else:
                bar.say(f"{each.name}: {each.streamlines} streamlines{', as before' if each.was_there else ''}")
    done = len(tensors) - len(problems) - kept
    states = {"done": done, "kept": kept, "failed": len(problems)}
    typer.echo(f"{task.out}: {', '.join(f'{count} {state}' for state, count in states.items() if count)}")
    if len(problems) == len(tensors):
        raise DataError(problems[0])
    if problems:
        raise typer.Exit(SOME_FAILED)
