"""``tensorldm tables tracts``: methods compared by the bundles that their tensors lead to."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.tables import tables

SOME_FAILED = 1
METHODS = ["ade", "minimum-norm", "ols-6", "ols-12"]


@tables.command()
def tracts(
    cohorts: Annotated[list[Path], typer.Argument(help="Folders that 'tensorldm cohort' wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for tensors, tractograms and tables; an unfinished one goes on.")],
    method: Annotated[
        list[str] | None, typer.Option(help=f"Closed forms and fits; by default {', '.join(METHODS)}.")
    ] = None,
    model: Annotated[list[Path] | None, typer.Option(help="Folder of a trained model; may be repeated.")] = None,
    bundle: Annotated[list[str] | None, typer.Option(help="Bundles to look at; by default the paper's twelve.")] = None,
    subjects: Annotated[int | None, typer.Option(min=1, help="Only the first so many of each cohort.")] = None,
    engine: Annotated[str, typer.Option(help="auto, mrtrix or dipy.")] = "auto",
    seeds: Annotated[int, typer.Option(help="Starting points of each tractogram.")] = 180_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the streamlines and of models that draw.")] = 0,
    device: Annotated[str, typer.Option(help="Of trained models: auto, cpu, cuda or mps.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Subjects at once; a single one uses them all.")] = os.cpu_count()
    or 1,
    results: Annotated[Path | None, typer.Option(help="Markdown document whose section 'tracts' is replaced.")] = None,
) -> None:
    """Track every method on virtual subjects and measure how far their bundles are from the reference's.

    The same command again goes on with what is missing. Exit code 1: some subjects failed, each named with its reason.
    """
    from rich.console import Console

    from tensorldm.cli.crew import ended_gently
    from tensorldm.cli.tract_drawing import draw_quietly, show_tracts
    from tensorldm.errors import DataError
    from tensorldm.evaluation.markdown import replace_section
    from tensorldm.evaluation.tracts import TractPlan
    from tensorldm.experiments.config import MethodConfig
    from tensorldm.experiments.record import own_arguments, record_run
    from tensorldm.experiments.tracts import TractTask, compare_tracts, find_subjects, write_results
    from tensorldm.reconstruct.choice import pick_device
    from tensorldm.tracts.settings import TrackSettings
    from tensorldm.work.crew import Crew

    named = METHODS if method is None and model is None else method or []
    methods = {name: MethodConfig(analytic=name) for name in named}
    methods |= {folder.resolve().name: MethodConfig(bundle=folder) for folder in model or []}
    settings = TrackSettings(seeds=seeds, seed=seed)
    plan = TractPlan(settings=settings, engine=engine, names=tuple(bundle or ()), workers=workers)
    chosen = find_subjects(cohorts, out, most=subjects)
    console = Console()
    task = TractTask(methods, plan, pick_device(device), draw_quietly)
    with ended_gently(), console.status("starting") as status:
        outcomes = compare_tracts(chosen, task, crew=Crew(workers), tell=status.update)
    problems = [outcome.problem for outcome in outcomes if outcome.problem]
    rows = [row for outcome in outcomes for row in outcome.rows]
    if not rows:
        raise DataError(problems[0])
    text = write_results(rows, out, record=record_run(own_arguments(), seed=seed), plan=plan)
    show_tracts(console, rows)
    if results is not None:
        replace_section(results, "tracts", text=text)
    console.print(f"Tensors, tractograms, pictures and tables are in {out}", markup=False, soft_wrap=True)
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(SOME_FAILED)
