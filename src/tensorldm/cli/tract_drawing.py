"""Tables and pictures of a tract evaluation: measures and pictures meet only on the command line."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from tensorldm.evaluation.table import Row
    from tensorldm.evaluation.tracts import TractResult

PICTURED = "CST_right"
"""The bundle that the paper shows; the first one where it is not among those measured."""


def show_tracts(console: "Console", rows: "Sequence[Row]") -> None:
    """The tables of bundles on the terminal, and what they mean."""
    from tensorldm.evaluation.tract_summary import describe_measures, describe_missing, summarise_tracts, turned

    for table in summarise_tracts(rows):
        console.print(turned(table).to_rich())
    for line in (*describe_missing(rows), *describe_measures()):
        console.print(line, style="dim", markup=False, highlight=False)


def draw_tracts(folder: Path, result: "TractResult") -> list[Path]:
    """Core distances by bundle, and one bundle of every method; without matplotlib a word instead."""
    from tensorldm.report.tract_figures import draw_bundle

    names = list(next(iter(result.bundles.values())))
    shown = PICTURED if PICTURED in names else names[0]
    of_methods = {method: bundles[shown] for method, bundles in result.bundles.items()}
    picture = folder / f"{shown}.png"
    drawn = draw_means(folder, result.rows)
    if drawn:
        draw_bundle(picture, of_methods, space=result.space, mask=result.mask)
        drawn.append(picture)
    return drawn


def draw_means(folder: Path, rows: "Sequence[Row]") -> list[Path]:
    """Core distances by bundle, means over the subjects; without matplotlib a word instead."""
    from tensorldm.errors import DataWarning, ToolError
    from tensorldm.report.tract_figures import draw_core_distances

    distances = folder / "core_distance.png"
    try:
        draw_core_distances(distances, rows)
    except ToolError as error:
        warnings.warn(str(error), DataWarning, stacklevel=2)
        return []
    return [distances]


def draw_quietly(folder: Path, result: "TractResult") -> None:
    """The same for many subjects, where nobody asks which pictures there are."""
    draw_tracts(folder, result)
