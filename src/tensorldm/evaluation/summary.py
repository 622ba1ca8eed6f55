"""The long table made readable: four small tables for the terminal and for Markdown, from one description."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

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


class Column(NamedTuple):
    """One column: its heading, the figure that stands in it, and how it is written."""

    heading: str
    quantity: str
    metric: str
    form: str


@dataclass(frozen=True)
class Summary:
    """A small table of text: one line per method."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def to_rich(self) -> Table:
        """For the terminal."""
        # Narrow enough for eighty columns: no frame, one blank between columns.
        table = Table(title=self.title, title_justify="left", box=None, padding=(0, 1, 0, 0))
        for heading in self.header:
            own = heading == "method"
            table.add_column(heading, justify="left" if own else "right", no_wrap=own)
        for line in self.lines:
            table.add_row(*line)
        return table

    def to_markdown(self) -> str:
        """For a document."""
        rule = ["---" if heading == "method" else "---:" for heading in self.header]
        lines = [self.header, rule, *self.lines]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(cells)} |" for cells in lines)])


def _image_columns(metric: str, form: str) -> tuple[Column, ...]:
    return tuple(Column(name, name, metric, form) for name in (*COMPONENT_NAMES, *MAP_NAMES))


TABLES: Final[Mapping[str, tuple[Column, ...]]] = MappingProxyType(
    {
        "Tensors": (
            Column("LEM", TENSOR, LEM, ".3f"),
            *(
                Column(f"LEM at {floor:g}", TENSOR, sensitivity_name(floor), ".3f")
                for floor in ranges.LEM_SENSITIVITY_FLOORS_MM2_PER_S
            ),
            Column("off-diag. LEM", TENSOR, OFF_DIAGONAL_LEM, ".3f"),
            Column("SPD viol. %", TENSOR, SPD_VIOLATIONS, ".2f"),
            Column("v1 median °", TENSOR, V1_MEDIAN, ".1f"),
            Column("v1 mean °", TENSOR, V1_MEAN, ".1f"),
        ),
        "PSNR, dB": _image_columns(PSNR, ".2f"),
        "SSIM": _image_columns(SSIM, ".3f"),
        "NMSE": _image_columns(NMSE, ".3f"),
    }
)
"""By title, in the order they are shown."""


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """The figures of every method, averaged over the subjects; a method measured by bundles alone has no line."""
    shown = {(column.quantity, column.metric) for columns in TABLES.values() for column in columns}
    own = [row for row in rows if (row.quantity, row.metric) in shown]
    return [_summary(title, columns, own) for title, columns in TABLES.items()]


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


def describe_anatomies(rows: Sequence[Row]) -> str:
    """How many subjects, and how many of them are independent: scans of one head are not."""
    heads = {row.subject: row.anatomy for row in rows}
    known, unknown = {head for head in heads.values() if head}, sum(not head for head in heads.values())
    subjects = f"{len(heads)} subject{'s' * (len(heads) != 1)}"
    most = len(known) + unknown
    if unknown:
        return f"{subjects}, at most {most} independent: the files do not say whose head {unknown} of them show"
    return f"{subjects} of {most} independent {'anatomies' if most != 1 else 'anatomy'}"


def format_value(value: float | None, form: str) -> str:
    """A figure as text: a dash where there is none, a sign for infinity (identical images)."""
    if value is None or math.isnan(value):
        return "–"
    return ("∞" if value > 0 else "-∞") if math.isinf(value) else format(value, form)


def _summary(title: str, columns: tuple[Column, ...], rows: Sequence[Row]) -> Summary:
    methods = [method for method in methods_of(rows) if method != REFERENCE]
    lines = tuple((method, *(_cell(column, method, rows) for column in columns)) for method in methods)
    return Summary(title, ("method", *(column.heading for column in columns)), lines)


def _cell(column: Column, method: str, rows: Sequence[Row]) -> str:
    value = mean_value(rows, method=method, quantity=column.quantity, metric=column.metric)
    return format_value(value, column.form)
