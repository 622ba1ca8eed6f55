"""Figures of bundles made readable: one line per method, one column per bundle, what was not found said in words."""

import math
import statistics
from collections.abc import Sequence
from typing import Final

from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.summary import Summary, format_value
from tensorldm.evaluation.table import Row, methods_of, subjects_of
from tensorldm.evaluation.tract_measures import CORE, CORE_CUT, CORE_SYMMETRIC, DICE, RATIO, STREAMLINES, TRACT_METRICS
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.tracts.core import CORE_POINTS, DEGREE, FEWEST_STREAMLINES, NEGLIGIBLE_MM
from tensorldm.tracts.overlap import LEAST_SHARE

TITLES: Final = {
    CORE: ("Core distance, mm", ".2f"),
    CORE_CUT: (f"Core distance with less than {NEGLIGIBLE_MM:g} mm as 0, mm", ".2f"),
    CORE_SYMMETRIC: ("Core distance both ways, mm", ".2f"),
    DICE: ("Overlap of visited voxels, Dice", ".2f"),
    RATIO: ("Streamlines, relative to the reference", ".2f"),
}
"""By metric, in the order they are shown."""


def is_tract_row(row: Row) -> bool:
    """Whether a figure is one of a bundle."""
    return row.metric in TRACT_METRICS


def summarise_tracts(rows: Sequence[Row]) -> list[Summary]:
    """A table for each measure; means over the subjects in which the bundle was found."""
    own = [row for row in rows if is_tract_row(row)]
    return [_summary(metric, own) for metric in TITLES] if own else []


def turned(table: Summary) -> Summary:
    """Bundles as lines and methods as columns: fourteen columns of figures do not fit a terminal."""
    columns = list(zip(table.header, *table.lines, strict=True))
    return Summary(table.title, columns[0], tuple(columns[1:]))


def describe_missing(rows: Sequence[Row]) -> list[str]:
    """What was not found, by method: each bundle with the numbers of streamlines that there were instead."""
    lines = []
    own = [row for row in rows if row.metric == STREAMLINES and row.value < FEWEST_STREAMLINES]
    for method in methods_of(own):
        counts: dict[str, list[str]] = {}
        for row in own:
            if row.method == method:
                counts.setdefault(row.quantity, []).append(f"{row.value:.0f}")
        places = ", ".join(f"{bundle} ({', '.join(each)})" for bundle, each in counts.items())
        lines.append(f"{method}: fewer than {FEWEST_STREAMLINES} streamlines in {places}")
    return lines


def describe_measures() -> list[str]:
    """How the figures were made, in sentences."""
    return [
        f"core: {CORE_POINTS} points on a polynomial of degree {DEGREE} through the centroids of the bundle's "
        "cross-sections; distance: mean over the method's points of the nearest reference point, in mm",
        f"a bundle of fewer than {FEWEST_STREAMLINES} streamlines, in the method or in the reference, has no distance",
        f"visited: voxels that {LEAST_SHARE:.0%} of a bundle's streamlines go through",
        f"'{NOISE_FLOOR}' is the reference tracked with another seed: what the measure says of two equal tensors",
        "means are over the bundles found: read the distance beside the number that is missing",
    ]


def _summary(metric: str, rows: Sequence[Row]) -> Summary:
    title, form = TITLES[metric]
    bundles = list(dict.fromkeys(row.quantity for row in rows))
    lines = []
    for method in methods_of(rows):
        if method == REFERENCE:
            continue
        values = {
            bundle: [row.value for row in rows if (row.method, row.quantity, row.metric) == (method, bundle, metric)]
            for bundle in bundles
        }
        known = {bundle: [value for value in each if math.isfinite(value)] for bundle, each in values.items()}
        every = [value for each in known.values() for value in each]
        cells = (format_value(_mean(each), form) for each in known.values())
        wanted = sum(map(len, values.values()))
        lines.append((method, format_value(_mean(every), form), f"{len(every)}/{wanted}", *cells))
    note = f"{title}, mean of {len(subjects_of(rows))} subject{'s' * (len(subjects_of(rows)) != 1)}"
    return Summary(note, ("method", "mean", "found", *bundles), tuple(lines))


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None
