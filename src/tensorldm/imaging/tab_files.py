"""Tab-separated tables with a header line: manifests, and the list of participants of a dataset."""

import csv
from pathlib import Path

from tensorldm.errors import DataError


def read_rows(path: Path, *, what: str) -> list[dict[str, str]]:
    """The lines below the header by column, without the blanks around each cell; a missing cell is empty.

    ``what`` names the table to the user. Letters of another encoding than UTF-8 are replaced, not refused: they stand
    in columns that are not ours.
    """
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t", restval=""))
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: the {what} cannot be read ({error}). Give a tab-separated text file.") from error
    return [{key: (row[key] or "").strip() for key in row if isinstance(key, str)} for row in rows]
