"""Which independent anatomy is behind each subject of a virtual cohort, as its table tells.

Two virtual subjects made from one head are two scans of one person: kept apart, a model would be tested on anatomy that
it was trained on. A dataset of real people has no such column, and every subject is a person.
"""

from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

from tensorldm.imaging.tab_files import read_rows

Split = Literal["train", "validation", "test"]
SPLITS: Final[tuple[Split, ...]] = get_args(Split)
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
    rows = read_rows(path, what="table of subjects")
    return {next(iter(row.values())): Head(row[ANATOMY], row.get(SPLIT, "")) for row in rows if row.get(ANATOMY)}
