"""Which independent anatomy is behind each subject of a virtual cohort, as its table tells.

Two virtual subjects made from one head are two scans of one person: kept apart, a model would be tested on anatomy that
it was trained on. A dataset of real people has no such column, and every subject is a person.
"""

import csv
from pathlib import Path
from typing import Final, NamedTuple

from tensorldm.errors import DataError

TABLES: Final = ("participants.tsv", "truth/subjects.tsv")
"""Of a BIDS dataset, and beside the truth of an HCP tree; the first column names the subject's folder."""
ANATOMY, SPLIT = "anatomy_source", "split"


class Head(NamedTuple):
    """The anatomy behind a subject, and the split that it was taken from."""

    anatomy: str
    split: str = ""


def read_heads(root: Path) -> dict[str, Head]:
    """The head of every subject by its folder's name; empty for people of flesh and blood."""
    path = next((root / name for name in TABLES if (root / name).is_file()), None)
    if path is None:
        return {}
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t"))
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: the table cannot be read ({error}). Mend it, or move it away.") from error
    header = rows[0] if rows else []
    if ANATOMY not in header:
        return {}
    cells = [dict(zip(header, row, strict=False)) for row in rows[1:]]
    return {row[header[0]]: Head(row[ANATOMY], row.get(SPLIT, "")) for row in cells if row.get(ANATOMY)}
