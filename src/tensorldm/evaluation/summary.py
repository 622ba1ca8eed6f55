"""The long table made readable: three small tables for the terminal and for Markdown, from one description."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.table import Table

from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.measures import (
    COMPONENT_NAMES,
    LEM,
    MAP_NAMES,
    MASK_VOXELS,
    NMSE,
    OFF_DIAGONAL_LEM,
    PSNR,
    SPD_VIOLATIONS,
    SSIM,
    TENSOR,
    V1_MEAN,
    V1_MEDIAN,
    sensitivity_name,
)
from tensorldm.evaluation.table import Row, mean_value, methods_of, subjects_of
from tensorldm.metrics import ranges


@dataclass(frozen=True)
class Column:
    """One column: its heading, and the figures of one quantity that stand in it, joined by a slash."""

    heading: str
    quantity: str
    metrics: tuple[str, ...]
    formats: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """A small table of text: one line per method."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def to_rich(self) -> Table:
        """For the terminal."""
        table = Table(title=self.title, title_justify="left")
        for heading in self.header:
            table.add_column(heading, justify="left" if heading == "method" else "right")
        for line in self.lines:
            table.add_row(*line)
        return table

    def to_markdown(self) -> str:
        """For a document."""
        rule = ["---" if heading == "method" else "---:" for heading in self.header]
        lines = [self.header, rule, *self.lines]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(cells)} |" for cells in lines)])


def _tensor_columns() -> list[Column]:
    low, high = ranges.LEM_SENSITIVITY_FLOORS_MM2_PER_S
    return [
        Column("LEM", TENSOR, (LEM,), (".3f",)),
        Column(f"at {low:g} / {high:g}", TENSOR, (sensitivity_name(low), sensitivity_name(high)), (".3f", ".3f")),
        Column("off-diag. LEM", TENSOR, (OFF_DIAGONAL_LEM,), (".3f",)),
        Column("SPD viol. %", TENSOR, (SPD_VIOLATIONS,), (".2f",)),
        Column("v1 median / mean °", TENSOR, (V1_MEDIAN, V1_MEAN), (".1f", ".1f")),
    ]


def _component_columns() -> list[Column]:
    return [Column(name, name, (PSNR, SSIM), (".2f", ".2f")) for name in COMPONENT_NAMES]


def _map_columns() -> list[Column]:
    return [Column(name, name, (NMSE, PSNR, SSIM), (".3f", ".2f", ".2f")) for name in MAP_NAMES]


TABLES: tuple[tuple[str, Callable[[], list[Column]]], ...] = (
    ("Tensors", _tensor_columns),
    ("Components: PSNR dB / SSIM", _component_columns),
    ("Maps: NMSE / PSNR dB / SSIM", _map_columns),
)


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """The figures of every method, averaged over the subjects."""
    return [_summary(title, columns(), rows) for title, columns in TABLES]


def describe_subjects(rows: Sequence[Row]) -> list[str]:
    """One line per subject: the mask's size and the reference's own violations."""
    lines = []
    for subject in subjects_of(rows):
        own = [row for row in rows if row.subject == subject]
        voxels = mean_value(own, method=REFERENCE, quantity=TENSOR, metric=MASK_VOXELS)
        rate = mean_value(own, method=REFERENCE, quantity=TENSOR, metric=SPD_VIOLATIONS)
        if voxels is not None and rate is not None:
            lines.append(f"{subject}: {voxels:.0f} voxels in the mask, {rate:.2f} % SPD violations in the reference")
    return lines


def format_value(value: float | None, form: str) -> str:
    """A figure as text: a dash where there is none, a sign for infinity (identical images)."""
    if value is None or math.isnan(value):
        return "–"
    return ("∞" if value > 0 else "-∞") if math.isinf(value) else format(value, form)


def _summary(title: str, columns: list[Column], rows: Sequence[Row]) -> Summary:
    methods = [method for method in methods_of(rows) if method != REFERENCE]
    lines = tuple((method, *(_cell(column, method, rows) for column in columns)) for method in methods)
    return Summary(title, ("method", *(column.heading for column in columns)), lines)


def _cell(column: Column, method: str, rows: Sequence[Row]) -> str:
    values = [mean_value(rows, method=method, quantity=column.quantity, metric=metric) for metric in column.metrics]
    return " / ".join(format_value(value, form) for value, form in zip(values, column.formats, strict=True))
