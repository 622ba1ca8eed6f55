"""Tables and pictures of a tract evaluation: measures and pictures meet only on the command line."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from tensorldm.evaluation.table import Row
    from tensorldm.evaluation.tracts import TractPlan, TractResult

PICTURED = "CST_right"
"""The bundle that the paper shows; the first one where it is not among those measured."""


def measure_tracts(
    console: "Console",
    reference: Path,
    predictions: Sequence[Path],
    *,
    bundles: Path,
    out: Path,
    plan: "TractPlan",
    mask: Path | None,
    convention: str | None,
    subject: str | None,
) -> "list[Row]":
    """Track and measure one subject, show the tables and draw the pictures; gives the rows."""
    from tensorldm.cli.crew import ended_gently
    from tensorldm.evaluation.tracts import evaluate_tracts

    with ended_gently(), console.status("tracking") as status:
        result = evaluate_tracts(
            reference,
            predictions,
            bundles=bundles,
            out=out,
            plan=plan,
            mask=mask,
            convention=convention,
            subject=subject,
            tell=status.update,
        )
    show_tracts(console, result.rows)
    for picture in draw_tracts(out, result):
        console.print(f"picture: {picture}", markup=False, soft_wrap=True)
    return result.rows


def show_tracts(console: "Console", rows: "Sequence[Row]") -> None:
    """The tables of bundles on the terminal, and what they mean."""
    from tensorldm.evaluation.tract_summary import describe_measures, describe_missing, summarise_tracts, turned

    for table in summarise_tracts(rows):
        console.print(turned(table).to_rich())
    for line in (*describe_missing(rows), *describe_measures()):
        console.print(line, style="dim", markup=False, highlight=False)


def draw_tracts(folder: Path, result: "TractResult") -> list[Path]:
    """Core distances by bundle, and one bundle of every method; without matplotlib a word instead."""
    from tensorldm.errors import DataWarning, ToolError
    from tensorldm.report.tract_figures import draw_bundle, draw_core_distances

    names = list(next(iter(result.bundles.values())))
    shown = PICTURED if PICTURED in names else names[0]
    distances, picture = folder / "core_distance.png", folder / f"{shown}.png"
    try:
        draw_core_distances(distances, result.rows)
        of_methods = {method: bundles[shown] for method, bundles in result.bundles.items()}
        draw_bundle(picture, of_methods, space=result.space, mask=result.mask)
    except ToolError as error:
        warnings.warn(str(error), DataWarning, stacklevel=2)
        return []
    return [distances, picture]


def draw_quietly(folder: Path, result: "TractResult") -> None:
    """The same for many subjects, where nobody asks which pictures there are."""
    draw_tracts(folder, result)
