"""``tensorldm tables``: comparisons of methods, each one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorldm.cli.crew import Scheduler, Workers, ended_gently
from tensorldm.cli.main import app

if TYPE_CHECKING:
    from tensorldm.experiments.config import StudyConfig
    from tensorldm.work.crew import Crew

STOPPED, FAILED = 143, 1
"""128 + SIGTERM, as of ``tensorldm train``; and where some run could not be trained."""
tables = typer.Typer(help="Compare methods and make the tables.", no_args_is_help=True)
app.add_typer(tables, name="tables")


@tables.callback()
def _group() -> None:
    """Compare methods and make the tables."""


@tables.command()
def analytic(
    scans: Annotated[list[Path], typer.Argument(help="Raw DWI series (NIfTI) with bval and bvec beside them.")],
    out: Annotated[Path, typer.Option(help="Folder for tensors, masks and tables.")],
    results: Annotated[
        Path | None, typer.Option(help="Markdown document whose section 'analytic' is to be replaced.")
    ] = None,
) -> None:
    """Compare the analytic methods and fits from 6 and 12 directions with the fit from each whole series."""
    from rich.console import Console

    from tensorldm.evaluation.markdown import replace_section
    from tensorldm.evaluation.summary import describe_anatomies, describe_subjects, summarise
    from tensorldm.experiments.analytic import compare_analytic, to_markdown
    from tensorldm.experiments.record import own_arguments, record_run

    console = Console()
    record = record_run(own_arguments(), seed=None)
    with console.status("starting") as status:
        measured = compare_analytic(scans, out, record=record, tell=status.update)
    for result in measured:
        for line in (*describe_subjects(result.rows), *result.remarks):
            console.print(line, style="dim", markup=False)
        for table in summarise(result.rows):
            console.print(table.to_rich())
    everything = [row for result in measured for row in result.rows]
    console.print(describe_anatomies(everything), style="dim", markup=False)
    if results is not None:
        replace_section(results, "analytic", text=to_markdown(measured, record))
    console.print(f"Tensors and tables are in {out}", markup=False, soft_wrap=True)


@tables.command()
def run(
    config: Annotated[str, typer.Option(help="The study: a YAML file, or a preset such as study or product.")],
    out: Annotated[Path, typer.Option(help="Folder of the study; an unfinished one is gone on with.")],
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    device: Annotated[str, typer.Option(help="Of trained models: auto, cpu, cuda or mps.")] = "auto",
    results: Annotated[Path | None, typer.Option(help="Markdown document to put this study's section into.")] = None,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out models that are not trained yet, each by name.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Look at settings and models; run nothing.")] = False,
) -> None:
    """Run a study from scratch: subjects, every method, every experiment, then its tables.

    The same command again does only what is missing: what is finished of a subject and method is kept.
    """
    from rich.console import Console

    from tensorldm.config.reading import read_config
    from tensorldm.experiments.config import StudyConfig
    from tensorldm.experiments.study import check_study
    from tensorldm.experiments.trained import with_bundles, without_missing
    from tensorldm.work.crew import Crew

    crew = Crew(workers, scheduler)
    study = read_config(StudyConfig, config, overrides or [])
    console = Console()
    if partial:
        study, missing = without_missing(study, out)
        for name in missing:
            console.print(f"{name} is left out: it is not trained yet.", markup=False, highlight=False, soft_wrap=True)
    for line in check_study(with_bundles(study, out)):
        console.print(line, style="dim", markup=False, highlight=False)
    if check:
        return
    _measure(study, out, device=device, crew=crew, results=results)


@tables.command()
def train(
    config: Annotated[str, typer.Option(help="The study: 'equal', 'ablations', or a YAML file with 'training'.")],
    out: Annotated[Path, typer.Option(help="Folder of the study; an unfinished one is gone on with.")],
    only: Annotated[list[str] | None, typer.Option(help="Train this run alone, and what it starts from.")] = None,
    data: Annotated[str | None, typer.Option(help="As of tensorldm train; by default the study's.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    results: Annotated[Path | None, typer.Option(help="Markdown document to put this study's section into.")] = None,
    workers: Workers = 1,
    then_tables: Annotated[bool, typer.Option("--tables/--no-tables", help="Measure and tabulate afterwards.")] = True,
    check: Annotated[bool, typer.Option("--check", help="Look at settings and the budget; train nothing.")] = False,
    at_once: Annotated[
        int, typer.Option(min=1, help="Runs that train at the same time; GPUs are dealt out in turn.")
    ] = 1,
) -> None:
    """Train every model of a study that is not trained yet, then measure and make the tables.

    The same command again goes on where it was stopped; what is trained or measured is kept.
    """
    from rich.console import Console

    from tensorldm.config.reading import read_config
    from tensorldm.errors import ConfigError
    from tensorldm.experiments.config import StudyConfig
    from tensorldm.experiments.preparing_runs import check_runs
    from tensorldm.experiments.side_by_side import train_side_by_side
    from tensorldm.experiments.training import describe_budget, train_runs
    from tensorldm.training.signals import stop_on_signals

    changes = [*(overrides or []), *([f"training.data={data}"] if data is not None else [])]
    study = read_config(StudyConfig, config, changes)
    if study.training is None:
        raise ConfigError(f"{config}: the study has no 'training', so there is nothing to train. Use 'tables run'.")
    console = Console()

    def say(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    for line in describe_budget(study.training, only or []):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    check_runs(study.training, out, seed=study.seed, only=only or [])
    if check:
        return
    with stop_on_signals() as stop:
        if at_once == 1:
            ended = train_runs(
                study.training, out, seed=study.seed, only=only or [], accelerator=device, say=say, console=console
            )
        else:
            ended = train_side_by_side(
                study.training, out, seed=study.seed, at_once=at_once, only=only or [], accelerator=device, say=say
            )
    if any(each.end == "stopped" for each in ended) or (stop and then_tables):
        raise typer.Exit(STOPPED)
    if then_tables:
        from tensorldm.experiments.trained import without_missing
        from tensorldm.work.crew import Crew

        found, missing = without_missing(study, out)
        for name in missing:
            say(f"{name} is left out of the tables: it is not trained yet.")
        _measure(found, out, device=device, crew=Crew(workers), results=results)
    if any(each.end != "trained" for each in ended):
        raise typer.Exit(FAILED)


def _measure(study: "StudyConfig", out: Path, *, device: str, crew: "Crew", results: Path | None) -> None:
    """Run a study and make its tables."""
    from rich.console import Console

    from tensorldm.experiments.record import own_arguments, record_run
    from tensorldm.experiments.study import run_study
    from tensorldm.reconstruct.choice import pick_device

    console, asked = Console(), list[int]()
    try:
        with console.status("starting") as status, ended_gently() as asked:
            record, where = record_run(own_arguments(), seed=study.seed), pick_device(device).type
            remarks = run_study(study, out, device=where, record=record, tell=status.update, crew=crew)
    except KeyboardInterrupt:
        if not asked:
            raise
        console.print("Stopped; what is measured is kept, and the same command goes on.", markup=False)
        raise typer.Exit(STOPPED) from None
    for remark in remarks:
        console.print(f"remark: {remark}", style="yellow", markup=False, highlight=False)
    make(out, results=results)


@tables.command()
def make(
    study: Annotated[Path, typer.Argument(help="Folder that 'tensorldm tables run' wrote.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the tables; by default 'tables' in the study's.")] = None,
    results: Annotated[Path | None, typer.Option(help="Markdown document to put this study's section into.")] = None,
    figures: Annotated[bool, typer.Option(help="Draw box plots, and maps of the tensors that were kept.")] = True,
) -> None:
    """Make all tables and figures again from a study's stored long tables; nothing is measured anew."""
    from rich.console import Console

    from tensorldm.evaluation.markdown import replace_section
    from tensorldm.experiments.tables.making import build_tables, to_document, write_tables
    from tensorldm.experiments.tables.stored import StoredStudy

    console = Console()
    stored = StoredStudy.open(study)
    built = build_tables(stored)
    folder = out or study / "tables"
    write_tables(stored, built, folder)
    if results is not None:
        replace_section(results, f"tables {study.resolve().name}", text=to_document(stored, built))
    for table in built:
        console.print(f"Table {table.number}: {table.title}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"Markdown, CSV and LaTeX are in {folder}", markup=False, soft_wrap=True)
    if figures:
        from tensorldm.cli.table_figures import draw_figures
        from tensorldm.errors import ToolError

        try:
            with console.status("drawing"):
                drawn = draw_figures(stored, folder / "figures")
        except ToolError as error:  # the tables are there, and a machine for training has no matplotlib
            console.print(f"No figures: {error}", style="yellow", markup=False, soft_wrap=True)
            return
        console.print(f"{len(drawn)} figures are in {folder / 'figures'}", markup=False, soft_wrap=True)
