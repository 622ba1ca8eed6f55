"""The one long table that every result is: method, subject, quantity, metric, value, and whose head it was."""

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
    anatomy: str = ""
    """The independent anatomy (a person, a virtual head) behind the subject; empty where nobody says."""


COLUMNS = tuple(column.name for column in fields(Row))
LEAST_COLUMNS = COLUMNS[:-1]
"""What a table needs; one that does not say whose heads were measured is read too."""


def write_table(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows as CSV, whole or not at all; infinite and missing figures are ``inf`` and ``nan``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        *names, value, anatomy = astuple(row)
        writer.writerow((*names, f"{value:.9g}", anatomy))
    write_text(path, text.getvalue())


def read_table(path: Path) -> list[Row]:
    """The rows of a table that was written here."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            header, *lines = list(csv.reader(stream)) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: the table cannot be read ({error}). Give a CSV file that evaluate wrote.") from error
    if tuple(header) not in (COLUMNS, LEAST_COLUMNS):
        raise DataError(f"{path}: columns {header}, expected {list(COLUMNS)}. Give a CSV file that evaluate wrote.")
    try:
        return [
            Row(method, subject, quantity, metric, float(value), *anatomy)
            for method, subject, quantity, metric, value, *anatomy in (_whole(line, header) for line in lines)
        ]
    except ValueError as error:
        raise DataError(f"{path}: a line is damaged ({error}). Run the evaluation again.") from error


def _whole(line: Sequence[str], header: Sequence[str]) -> Sequence[str]:
    if len(line) != len(header):
        raise ValueError(f"{len(line)} cells where there are {len(header)} columns")
    return line


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
