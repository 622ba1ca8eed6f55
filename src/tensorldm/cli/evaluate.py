"""``tensorldm evaluate``: measure tensor images against a reference."""

from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.main import app


@app.command()
def evaluate(
    reference: Annotated[Path, typer.Argument(help="Reference tensor image (NIfTI).")],
    predictions: Annotated[list[Path], typer.Argument(help="Tensor images to be measured, on the same grid.")],
    out: Annotated[Path, typer.Option(help="CSV file for the long table.")],
    mask: Annotated[
        Path | None, typer.Option(help="Brain mask; by default the one the reference's sidecar names, or beside it.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="How images without a sidecar are stored: mrtrix, fsl, dipy or nifti.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="The subject's name in the table.")] = None,
) -> None:
    """Measure tensor images against a reference: components, maps, LEM, SPD violations and directions."""
    from rich.console import Console

    from tensorldm.evaluation.evaluate import evaluate_files
    from tensorldm.evaluation.summary import describe_anatomies, describe_subjects, summarise
    from tensorldm.evaluation.table import write_table
    from tensorldm.metrics import ranges

    rows = evaluate_files(reference, predictions, mask=mask, convention=convention, subject=subject)
    write_table(out, rows)
    console = Console()
    for table in summarise(rows):
        console.print(table.to_rich())
    for line in (*describe_subjects(rows), describe_anatomies(rows), *ranges.describe()):
        console.print(line, style="dim", markup=False)
    console.print(f"{len(rows)} figures are in {out}", markup=False, soft_wrap=True)
