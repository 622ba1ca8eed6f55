"""What the screen shows of reconstructions: one scan in full, many as a line each and a sum at the end."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tensorldm.cli.crew import progress_of

if TYPE_CHECKING:
    from rich.console import Console

    from tensorldm.reconstruct.files import Failed, Finished, Request
    from tensorldm.reconstruct.inputs import InputFiles
    from tensorldm.work.crew import Crew

FEW = 3
"""Scans that are shown in full; more would scroll away."""


def reconstruct_and_show(inputs: Sequence["InputFiles"], request: "Request", crew: "Crew") -> list["Finished | Failed"]:
    """Reconstruct every scan and tell how each went."""
    from tensorldm.reconstruct.files import Finished
    from tensorldm.reconstruct.many import reconstruct_files

    outcomes, few = list[Any](), len(inputs) <= FEW
    with progress_of("checking", len(inputs)) as bar:
        with closing(reconstruct_files(inputs, request, tell=bar.update, crew=crew, say=bar.say)) as ended:
            for outcome in ended:
                outcomes.append(outcome)
                bar.advance(outcome.name)
                if not isinstance(outcome, Finished):
                    typer.echo(f"{outcome.traceback}error: {outcome.error}", err=True)
                elif few:
                    _show(bar.console, outcome, request.out)
                else:
                    bar.say(_line(outcome))
        if not few:
            _show_sums(bar.console, outcomes, request.out)
    return outcomes


def _show(console: "Console", finished: "Finished", out: Path) -> None:
    """One screen: figures, warnings, files."""
    if finished.kept:
        place = finished.written[0].parent
        console.print(
            f"{finished.name}: kept, as it was made before from the same inputs and settings; it is in {place} "
            f"(--redo makes it again); {_next_step(finished, out)}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return
    console.print(f"\n{finished.name}", style="bold", markup=False)
    for line in finished.summary.lines():
        console.print(f"  {line}", markup=False, highlight=False)
    console.print(f"  brain                     {finished.brain}", markup=False, highlight=False)
    for word in finished.summary.warnings:
        console.print(f"  warning: {word}", style="yellow", markup=False, highlight=False)
    names = ", ".join(str(path.relative_to(out)) for path in finished.written)
    console.print(f"  files in {out}: {names}", markup=False, highlight=False)
    console.print(f"  {_next_step(finished, out)}", markup=False, highlight=False, soft_wrap=True)


def _next_step(finished: "Finished", out: Path) -> str:
    """What to look at first: the page, where one could be drawn."""
    page = next((path for path in finished.written if path.suffix == ".html"), None)
    first = "" if page is None else f"open {page} in a browser, or "
    return f"to look at it: {first}tensorldm view {out}"


def _line(finished: "Finished") -> str:
    summary = finished.summary
    fa = "no white matter found" if summary.median_fa is None else f"white matter FA {summary.median_fa:.2f}"
    warnings = f", {len(summary.warnings)} warnings" if len(summary.warnings) > 1 else ", 1 warning"
    return f"{finished.name}: {'kept' if finished.kept else 'done'}, {fa}{warnings if summary.warnings else ''}"


def _show_sums(console: "Console", outcomes: Sequence["Finished | Failed"], out: Path) -> None:
    """How many there are of each kind, and which warnings are common."""
    from tensorldm.reconstruct.files import Finished

    finished = [outcome for outcome in outcomes if isinstance(outcome, Finished)]
    kept = sum(outcome.kept for outcome in finished)
    states = {"done": len(finished) - kept, "kept": kept, "failed": len(outcomes) - len(finished)}
    common = Counter(word for outcome in finished for word in outcome.summary.warnings)
    for word, count in common.most_common():
        console.print(f"warning ({count} of {len(finished)} scans): {word}", style="yellow", markup=False)
    said = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    console.print(f"{out}: {said}", markup=False, highlight=False, soft_wrap=True)
    if finished:
        words = f"to look at them: tensorldm view {out}, or on one page: tensorldm report --cohort {out}"
        console.print(words, markup=False, highlight=False, soft_wrap=True)
