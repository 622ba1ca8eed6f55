"""``tensorldm tables tracts``: methods compared by the bundles that their tensors lead to."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.tables import tables

SOME_FAILED = 1
DEFAULT_VIRTUAL = 2


@tables.command()
def tracts(
    out: Annotated[Path, typer.Option(help="Folder for tensors, tractograms and tables; an unfinished one goes on.")],
    cohorts: Annotated[
        list[Path] | None, typer.Argument(help="Folders that 'tensorldm cohort' wrote; without them some are made.")
    ] = None,
    virtual: Annotated[
        int | None, typer.Option(min=0, help=f"Make so many virtual test subjects; without cohorts {DEFAULT_VIRTUAL}.")
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(help="Folder of template anatomies: make a subject from its test anatomy too.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the subjects made.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="ade, minimum-norm, ols-6, ols-12 or tensorldm (the shipped model); by default all."),
    ] = None,
    model: Annotated[
        list[Path] | None, typer.Option(help="Folder of a further trained model, ours or a rival's; may be repeated.")
    ] = None,
    bundle: Annotated[list[str] | None, typer.Option(help="Bundles to look at; by default the paper's twelve.")] = None,
    subjects: Annotated[int | None, typer.Option(min=1, help="Only the first so many of each cohort.")] = None,
    engine: Annotated[str, typer.Option(help="auto, mrtrix or dipy.")] = "auto",
    seeds: Annotated[int, typer.Option(help="Starting points of each tractogram.")] = 180_000,
    seed: Annotated[int, typer.Option(min=0, help="Of subjects made, streamlines and models that draw.")] = 0,
    device: Annotated[str, typer.Option(help="Of trained models: auto, cpu, cuda or mps.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Subjects at once; a single one uses them all.")] = os.cpu_count()
    or 1,
    results: Annotated[Path | None, typer.Option(help="Markdown document whose section 'tracts' is replaced.")] = None,
) -> None:
    """Track every method on virtual subjects and measure how far their bundles are from the reference's.

    Three minutes a method and subject on one core. The same command again goes on with what is missing. Exit code 1:
    some subjects failed, each named with its reason.
    """
    from rich.console import Console

    from tensorldm.cli.crew import ended_gently
    from tensorldm.cli.tract_drawing import draw_means, draw_quietly, show_tracts
    from tensorldm.errors import DataError
    from tensorldm.evaluation.markdown import replace_section
    from tensorldm.evaluation.tracts import TractPlan
    from tensorldm.experiments.methods import identity
    from tensorldm.experiments.record import own_arguments, record_run
    from tensorldm.experiments.tract_subjects import Wanted, find_subjects, make_cohorts
    from tensorldm.experiments.tract_tensors import name_methods
    from tensorldm.experiments.tracts import TractTask, compare_tracts, write_results
    from tensorldm.reconstruct.choice import pick_device
    from tensorldm.tracts.engine import open_engine
    from tensorldm.tracts.settings import TrackSettings
    from tensorldm.work.crew import Crew
    from tensorldm.work.folder import writing_to

    open_engine(engine)  # what is wrong is told before anything is made
    methods = name_methods(method, model or [])
    for each in methods.values():
        identity(each)
    settings = TrackSettings(seeds=seeds, seed=seed)
    plan = TractPlan(settings=settings, engine=engine, names=tuple(bundle or ()), workers=workers)
    console, task = Console(), TractTask(methods, plan, pick_device(device), draw_quietly)
    count = DEFAULT_VIRTUAL if virtual is None and not cohorts else virtual or 0
    wanted = Wanted(count, templates, tuple(overrides or ()), seed)
    with ended_gently(), writing_to(out), console.status("starting") as status:
        made = make_cohorts(wanted, out / "cohorts", workers=workers, tell=status.update)
        chosen = find_subjects([*(cohorts or []), *made], out, most=subjects)
        outcomes = compare_tracts(chosen, task, crew=Crew(workers), tell=status.update)
        problems = [outcome.problem for outcome in outcomes if outcome.problem]
        rows = [row for outcome in outcomes for row in outcome.rows]
        if not rows:
            raise DataError(problems[0])
        text = write_results(rows, out, record=record_run(own_arguments(), seed=seed), plan=plan)
        draw_means(out, rows)
    show_tracts(console, rows)
    if results is not None:
        replace_section(results, "tracts", text=text)
    console.print(f"Tensors, tractograms, pictures and tables are in {out}", markup=False, soft_wrap=True)
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(SOME_FAILED)
