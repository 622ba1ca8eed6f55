"""``tensorldm tables``: comparisons of methods, each one command."""

from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.main import app

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
