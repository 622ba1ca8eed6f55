"""``tensorldm bids``: the BIDS App. A dataset in, a derivative dataset out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorldm.cli.crew import Scheduler, Workers, ended_gently, progress_of
from tensorldm.cli.main import USER_ERROR, app
from tensorldm.cli.outcomes import reconstruct_and_show
from tensorldm.cli.reconstruct import SOME_FAILED, describe, draw

if TYPE_CHECKING:
    from tensorldm.reconstruct.files import Request
    from tensorldm.reconstruct.inputs import InputFiles
    from tensorldm.work.crew import Crew

LEVELS = ("participant", "group")


@app.command()
def bids(
    bids_dir: Annotated[Path, typer.Argument(metavar="BIDS_DIR", help="A BIDS dataset with diffusion series.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the derivative dataset.")],
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="participant: every scan; group: tables and report.")],
    more_labels: Annotated[list[str] | None, typer.Argument(metavar="", hidden=True)] = None,
    participants: Annotated[
        list[str] | None,
        typer.Option("--participant-label", "--participant_label", help="Only these, with or without sub-."),
    ] = None,
    sessions: Annotated[
        list[str] | None, typer.Option("--session-label", "--session_label", help="Only these, with or without ses-.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Folder of a trained model (a bundle).")] = None,
    method: Annotated[str | None, typer.Option(help="Instead: minimum-norm, ade or ade-literal.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    grid: Annotated[str, typer.Option(help="native (the scan's own) or 2mm.")] = "native",
    samples: Annotated[int | None, typer.Option(help="Samples of a model; 1 is fast and has no uncertainty.")] = None,
    steps: Annotated[int, typer.Option(help="Sampler steps of a model.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
    directions: Annotated[
        str, typer.Option(help="3: b=0 and three volumes; all: the whole shell; auto: what suits.")
    ] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Go on where the checks would refuse.")] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Do again what is done already.")] = False,
    workers: Workers = 1,
    scheduler: Scheduler = None,
) -> None:
    """Reconstruct every diffusion series of a BIDS dataset into a BIDS derivative (a BIDS App).

    LEVEL participant writes tensors, maps and a report for each series; LEVEL group then writes participants.tsv and,
    in derivatives/group, a table of all scans and a report. The same command again does only what is missing.

    Exit code 0: all are done; 1: some are not, each named with its reason; 2: none is.
    """
    import os

    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # see reconstruct
    from tensorldm.bids.dataset import find_series
    from tensorldm.errors import ConfigError
    from tensorldm.reconstruct.choice import choose, pick_device
    from tensorldm.reconstruct.derivative import check_place
    from tensorldm.reconstruct.files import Request
    from tensorldm.reconstruct.settings import Settings
    from tensorldm.work.crew import Crew

    if level not in LEVELS:
        raise ConfigError(f"LEVEL is '{level}'; give one of {', '.join(LEVELS)}.")
    labels = _labels(participants or [], more_labels or [])
    crew = Crew(workers, scheduler)
    check_place(out)
    if level == "group":
        with ended_gently():
            _group(out, crew)
        return
    settings = Settings(grid=grid, directions=directions, samples=samples, steps=steps, seed=seed, force=force)
    choice = choose(model=model, method=method)
    request = Request(choice, settings, pick_device(device), out, "mrtrix", draw, describe, redo)
    with ended_gently():
        series = find_series(bids_dir, participants=labels, sessions=sessions or [])
        _participant(series, request, crew, whole=not labels and not sessions)


def _labels(participants: list[str], more: list[str]) -> list[str]:
    """BIDS Apps write ``--participant-label 01 02 03``: the words that follow belong to it."""
    from tensorldm.errors import ConfigError

    if more and not participants:
        raise ConfigError(f"'{more[0]}' is one word too many. Give BIDS_DIR OUT LEVEL, then options.")
    return [*participants, *more]


def _participant(inputs: list["InputFiles"], request: "Request", crew: "Crew", *, whole: bool) -> None:
    """Every series, and what failed written down for the group level.

    ``whole``: these are all that the dataset has, so what once failed and is no longer there is not missed.
    """
    from tensorldm.bids.failures import Failure, failures_of
    from tensorldm.reconstruct.files import Failed

    outcomes = reconstruct_and_show(inputs, request, crew)
    journal, there = failures_of(request.out), {each.name for each in inputs}
    for failure in list(journal.entries()) if whole else ():
        if failure.name not in there:
            journal.forget(failure.name)
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            journal.write(outcome.name, Failure(name=outcome.name, reason=str(outcome.error)))
        else:
            journal.forget(outcome.name)
    failed = sum(isinstance(outcome, Failed) for outcome in outcomes)
    if failed:
        raise typer.Exit(SOME_FAILED if failed < len(outcomes) else USER_ERROR)


def _group(out: Path, crew: "Crew") -> None:
    from tensorldm.bids.group import write_group
    from tensorldm.work.folder import writing_to

    with writing_to(out), progress_of("reading", None) as bar:
        group = write_group(out, crew=crew, tell=bar.advance, say=bar.say)
    for name, reason in group.failures.items():
        typer.echo(f"error: {name}: {reason}", err=True)
    typer.echo(f"{group.scans} scans are in {', '.join(str(path) for path in group.written)}")
    if group.failures:
        raise typer.Exit(SOME_FAILED)
