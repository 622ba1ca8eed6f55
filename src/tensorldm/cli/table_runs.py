"""``tensorldm tables export`` and ``import``: trained runs of a study, carried from one machine to another."""

from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.tables import tables

DEFAULT_MIB = 15.0
"""Below what mail, chat and version control usually carry in one file."""


@tables.command("export")
def export_command(
    study: Annotated[Path, typer.Argument(help="Folder that 'tensorldm tables train' wrote.")],
    out: Annotated[Path, typer.Option(help="Folder for the runs, to be carried to another machine.")],
    only: Annotated[
        list[str] | None, typer.Option(help="This run alone; NAME/STAGE for a stage before its last. May be repeated.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full-precision", help="The weights bit by bit; by default they are halved to float16.")
    ] = False,
    largest: Annotated[float, typer.Option(min=0.001, help="MiB of a file; larger weights are cut.")] = DEFAULT_MIB,
) -> None:
    """Write trained runs of a study to a folder: weights, settings, learning rates, logs.

    'tensorldm tables import' takes them into a study on another machine, where they are measured as if trained there.
    """
    from tensorldm.bounded import MIB
    from tensorldm.bundle_files import Precision
    from tensorldm.experiments.carrying import export_runs

    precision: Precision = "float32" if full else "float16"
    written = export_runs(study, out, only=only or [], precision=precision, largest=int(largest * MIB))
    for each in written:
        typer.echo(str(each))
    typer.echo(f"{sum(each.mib for each in written):.1f} MiB of weights are in {out}")


@tables.command("import")
def import_command(
    folders: Annotated[list[Path], typer.Argument(help="Folders that 'tensorldm tables export' wrote.")],
    out: Annotated[Path, typer.Option(help="Folder of the study; a new one is made.")],
) -> None:
    """Take exported runs into a study: 'tensorldm tables train' and 'run' find them trained.

    A run of the same name with another recipe or other weights is refused; one that is there already stays.
    """
    from tensorldm.experiments.carrying import import_runs

    for each in import_runs(folders, out):
        typer.echo(str(each))
    typer.echo(f"The runs are in {out / 'runs'}")
