"""The one long table that every result is: method, subject, quantity, metric, value."""

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_text


@dataclass(frozen=True)
class Row:
    """One figure: how one method did on one subject, for one quantity by one metric."""

    method: str
    subject: str
    quantity: str
    metric: str
    value: float


COLUMNS = tuple(column.name for column in fields(Row))


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows as CSV, whole or not at all; infinite and missing figures are ``inf`` and ``nan``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((*astuple(row)[:-1], f"{row.value:.9g}") for row in rows)
    write_text(path, text.getvalue())


def read_table(path: Path) -> list[Row]:
    """The rows of a table that was written here."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            header, *lines = list(csv.reader(stream)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: the table cannot be read ({error}). Give a CSV file that evaluate wrote.") from error
    if tuple(header) != COLUMNS:
        raise DataError(f"{path}: columns {header}, expected {list(COLUMNS)}. Give a CSV file that evaluate wrote.")
    try:
        return [
            Row(method, subject, quantity, metric, float(value)) for method, subject, quantity, metric, value in lines
        ]
    except ValueError as error:
        raise DataError(f"{path}: a line is damaged ({error}). Run the evaluation again.") from error


def mean_value(rows: Sequence[Row], *, method: str, quantity: str, metric: str) -> float | None:
    """Mean of a figure over the subjects; None where it was not measured.

    Infinite where any subject is (two identical images): an average of decibels would hide it.
    """
    values = [row.value for row in rows if (row.method, row.quantity, row.metric) == (method, quantity, metric)]
    return statistics.fmean(values) if values else None


def methods_of(rows: Iterable[Row]) -> list[str]:
    """Method names in the order in which they first occur."""
    return list(dict.fromkeys(row.method for row in rows))


def subjects_of(rows: Iterable[Row]) -> list[str]:
    """Subject names in the order in which they first occur."""
    return list(dict.fromkeys(row.subject for row in rows))
