"""Coverage in words and tables, for the terminal and for Markdown."""

from collections.abc import Sequence
from typing import Final

from tensorldm.experiments.coverage import GOALS, MASK, REAL, CoverageRow
from tensorldm.metrics.ranges import V1_MIN_FA
from tensorldm.reconstruct.likeness import TISSUES
from tensorldm.reconstruct.uncertainty import Calibration

HEADINGS: Final = (
    "quantity",
    "region",
    "voxels",
    "covered, factors 1",
    "covered",
    "lowest to highest subject",
    "promised",
    "mean width, factors 1",
    "mean width",
)
SCREEN: Final = tuple(key for key in GOALS if key[2] == MASK)
READING: Final = (
    "Share of voxels whose truth lies within the interval (FA, MD) or the cone (v1, where the true FA > "
    f"{V1_MIN_FA:g}). Truth `clean` is the tensor of the noise-free acquisition; `fit` is the least-squares fit of all "
    "volumes with their noise, some of which the input shares: an interval for the clean tensor need not hold it. "
    "Widths go from end to end (MD in 1e-3 mm²/s), that of v1 is half the cone's opening in degrees."
)


def cells(row: CoverageRow) -> tuple[str, ...]:
    """A figure as it is shown, under ``HEADINGS``."""
    goal = "" if row.goal is None else f"{row.goal[0]:.0%} to {row.goal[1]:.0%}{'' if row.met else ', missed'}"
    return (
        f"{row.quantity.upper() if row.quantity != 'v1' else 'v1'} {row.level:.0%}",
        row.region,
        str(row.voxels),
        f"{row.covered_before:.1%}",
        f"{row.covered:.1%}",
        f"{row.lowest_subject:.1%} to {row.highest_subject:.1%}",
        goal,
        _width(row, row.width_before),
        _width(row, row.width),
    )


def tables(rows: Sequence[CoverageRow]) -> list[tuple[str, list[CoverageRow]]]:
    """The figures of one split and truth together, with a title."""
    keys = dict.fromkeys((row.split, row.truth) for row in rows)
    return [
        (f"{split}, truth: {truth}", [row for row in rows if (row.split, row.truth) == (split, truth)])
        for split, truth in keys
    ]


def to_markdown(rows: Sequence[CoverageRow]) -> str:
    """Every table, with a word on how to read them."""
    parts = [READING]
    for title, members in tables(rows):
        lines = [HEADINGS, tuple("---" for _ in HEADINGS), *(cells(row) for row in members)]
        parts += [f"### {title}", "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    return "\n\n".join(parts)


def short_table(rows: Sequence[CoverageRow]) -> list[tuple[str, ...]]:
    """What fits on a screen: the promised figures, and the same over the masks of real scans; headings first."""
    lines: list[tuple[str, ...]] = [("", "quantity", "region", "covered", "promised", "mean width")]
    for row in rows:
        real = row.split.startswith(REAL) and any(key == (row.quantity, row.level, row.region) for key in SCREEN)
        if real or row.goal is not None:
            quantity, region, _, before, after, _, goal, _, width = cells(row)
            lines.append((row.split, quantity, region, f"{before} → {after}", goal, width))
    return lines


def describe_factors(calibration: Calibration) -> list[str]:
    """The factors in plain sentences."""
    lines = []
    for name, one, each in (
        ("FA", calibration.fa, calibration.fa_by_tissue),
        ("MD", calibration.md, calibration.md_by_tissue),
        ("v1", calibration.v1, None),
    ):
        parts = [] if each is None else [f"{tissue} {factor:.3g}" for tissue, factor in zip(TISSUES, each, strict=True)]
        what = f", but by the tissue that a voxel looks like: {', '.join(parts)}" if parts else ""
        lines.append(f"{name}: half-widths times {one:.3g}{what}.")
    return lines


def verdict(rows: Sequence[CoverageRow]) -> str:
    """Whether all that is promised of a shipped model was found."""
    promised = [row for row in rows if row.goal is not None]
    missed = [row for row in promised if not row.met]
    if not promised:
        return "Nothing is promised of these figures."
    if not missed:
        return f"All {len(promised)} promised coverages are kept."
    what = "; ".join(f"{cells(row)[0]} in {row.region}: {row.covered:.1%}" for row in missed)
    return f"{len(missed)} of {len(promised)} promised coverages are missed: {what}."


def _width(row: CoverageRow, value: float) -> str:
    if row.quantity == "md":
        return f"{1e3 * value:.3f}"
    return f"{value:.1f}" if row.quantity == "v1" else f"{value:.3f}"
