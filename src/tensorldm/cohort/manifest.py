"""Which real anatomies may be trained on, which are for validation and which for the test, person by person.

A scan tested on a head that was trained on would be tested on the model's memory, so scans of one person stay
together. A folder of one's own brings ``manifest.tsv``: a header ``name``, ``person``, ``split`` with tabs between.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tensorldm.errors import DataError
from tensorldm.imaging.heads import SPLITS
from tensorldm.imaging.tab_files import read_rows

MANIFEST_FILE: Final = "manifest.tsv"


@dataclass(frozen=True)
class Entry:
    """One scan or template: its folder's name, whose head it is, and its split."""

    name: str
    person: str
    split: str


MANIFEST: Final = (
    Entry("niimath_tensor", "niimath", "train"),
    Entry("tractor_case", "tractor", "train"),
    Entry("papaya_case", "papaya", "train"),
    Entry("hcp1065", "hcp1065", "train"),
    Entry("uih_PA", "uih", "train"),
    Entry("uih_AP", "uih", "train"),
    Entry("toshiba_ortho", "toshiba", "train"),
    Entry("toshiba_oblique", "toshiba", "train"),
    Entry("philips_vanderbilt_b2000", "vanderbilt", "train"),
    Entry("philips_elition", "elition", "validation"),
    Entry("philips_nottingham", "nottingham", "validation"),
    Entry("tractseg_case", "tractseg", "test"),
    Entry("siemens_prisma_supine", "prisma", "test"),
    Entry("siemens_prisma_prone", "prisma", "test"),
)
"""Every real anatomy that the package's own models have seen or are judged by."""


def person_behind(name: str) -> str | None:
    """Whose head one of these scans or templates shows; None for a name that is not listed."""
    return next((entry.person for entry in MANIFEST if entry.name == name), None)


def check_manifest(entries: Iterable[Entry]) -> None:
    """Refuse an unknown split, and a name or person that occurs in two."""
    places: dict[tuple[str, str], str] = {}
    for entry in entries:
        if entry.split not in SPLITS:
            raise DataError(f"{entry.name}: there is no split '{entry.split}'. Use one of {', '.join(SPLITS)}.")
        for kind, key in (("source", entry.name), ("person", entry.person)):
            before = places.setdefault((kind, key), entry.split)
            if before != entry.split:
                raise DataError(
                    f"The {kind} '{key}' is in two splits, {before} and {entry.split}. "
                    "Put every scan of one person into one split."
                )


def read_manifest(folder: Path) -> tuple[Entry, ...]:
    """The folder's own manifest where it has one, else the package's; checked."""
    path = folder / MANIFEST_FILE
    if not path.is_file():
        return MANIFEST
    rows, columns = read_rows(path, what="manifest"), ("name", "person", "split")
    for number, row in enumerate(rows, start=2):
        if not all(row.get(column) for column in columns):
            raise DataError(f"{path}, line {number}: name, person and split are needed, with tabs between. Add them.")
    entries = tuple(Entry(*(row[column] for column in columns)) for row in rows)
    check_manifest(entries)
    return entries
