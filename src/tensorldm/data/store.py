"""A folder of prepared subjects: versioned, hashed, memory-mappable, safe to add to from several processes.

    store.json                    format, settings and their hash, the splits, and one entry per subject
    subjects/NAME.safetensors     the subjects
    journal/NAME.json             one entry each, written after its subject; ``store.json`` is rebuilt from them

A run that is stopped leaves whole subjects and their journal entries, and the next run goes on from there.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from tensorldm import bounded
from tensorldm.config.reading import Strict
from tensorldm.data.splits import Source, check_splits
from tensorldm.data.subject import Record, Subject
from tensorldm.data.subject_file import read_box, read_mask, read_subject, write_subject
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_text
from tensorldm.imaging.heads import Split
from tensorldm.shapes import MaskImage
from tensorldm.work.journal import Journal
from tensorldm.work.sources import file_hash

FORMAT: Literal["tensorldm-store"] = "tensorldm-store"
VERSION = 1
LONGEST_NAME = 100


class Entry(Strict):
    """One subject in the index."""

    name: str
    sha256: str
    """Of the subject's file."""
    shape: tuple[int, int, int]
    record: Record

    @field_validator("name")
    @classmethod
    def _stays_in_the_folder(cls, name: str) -> str:
        if name != safe_name(name):
            raise ValueError("not a plain file name")
        return name

    @property
    def source(self) -> Source:
        """The scan it was made from, as far as splitting is concerned."""
        image = next(source for source in self.record.sources if source.role == "dwi")
        return Source(self.name, self.record.person, image.sha256)


class Index(Strict):
    """What ``store.json`` holds."""

    format: Literal["tensorldm-store"] = FORMAT
    version: int = VERSION
    made_by: str
    settings: dict[str, Any]
    settings_sha256: str
    split_seed: int | None = None
    splits: dict[str, Split] = Field(default_factory=dict)
    entries: tuple[Entry, ...] = ()


def safe_name(name: str) -> str:
    """A stranger's name as a plain file name: it can neither leave the folder nor hide in it."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", plain).strip("._-")[:LONGEST_NAME].rstrip("._-")
    if not plain:
        raise DataError(f"{name!r}: a subject's name needs at least one letter or digit. Rename the file or folder.")
    return plain


def settings_hash(settings: Mapping[str, Any]) -> str:
    """Hash of all settings, independent of their order."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, allow_nan=False).encode()).hexdigest()


class Store:
    """A store on the disk, opened for reading; ``add`` and ``write_index`` extend it."""

    def __init__(self, folder: Path, index: Index) -> None:
        self.folder = folder
        self.index = index
        self._entries = {entry.name: entry for entry in index.entries}
        self._journal = Journal(folder / "journal", Entry)

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """A finished store; its version and splits are checked, its hashes only by ``verify``."""
        store = cls(folder, _read_index(folder / "store.json"))
        check_splits(store.index.splits, [entry.source for entry in store.index.entries])
        return store

    @classmethod
    def create(cls, folder: Path, *, settings: Mapping[str, Any], made_by: str) -> "Store":
        """A new store, or the one that is there if it was made with the same settings."""
        path = folder / "store.json"
        if path.exists():
            store = cls(folder, _read_index(path))
            if store.index.settings_sha256 != settings_hash(settings):
                raise DataError(
                    f"{folder}: prepared with other settings ({_difference(store.index.settings, settings)}). "
                    "Give another --out, or the settings of before."
                )
            return store
        if folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder}: not a store and not empty. Give a new or empty folder as --out.")
        index = Index(made_by=made_by, settings=dict(settings), settings_sha256=settings_hash(settings))
        write_text(path, index.model_dump_json(indent=2) + "\n")
        return cls(folder, index)

    @property
    def names(self) -> tuple[str, ...]:
        """Every subject, in alphabetical order."""
        return tuple(sorted(self._entries))

    def entry(self, name: str) -> Entry:
        """The index entry of a subject."""
        try:
            return self._entries[name]
        except KeyError:
            raise DataError(
                f"{self.folder}: there is no subject '{name}' among its {len(self._entries)}. See store.json for names."
            ) from None

    def split(self, split: Split) -> tuple[str, ...]:
        """The subjects of a split, in alphabetical order."""
        names = tuple(name for name in self.names if self.index.splits.get(name) == split)
        if not names:
            raise DataError(
                f"{self.folder}: no subject in split '{split}'. Prepare more subjects, or pin some with a manifest."
            )
        return names

    def load(self, name: str) -> Subject:
        """A whole subject."""
        return read_subject(self._path(name))

    def load_box(self, name: str, corner: tuple[int, int, int], *, size: tuple[int, int, int]) -> Subject:
        """A box of a subject; only its bytes are read, and what lies outside the volume is zero."""
        return read_box(self._path(name), corner, size=size)

    def mask(self, name: str) -> MaskImage:
        """A subject's brain mask."""
        return read_mask(self._path(name)).numpy()

    def add(self, subject: Subject) -> Entry:
        """Write a subject, then its journal entry; safe beside other processes that add other subjects."""
        name = subject.record.name
        assert name == safe_name(name), f"{name!r} is not a safe file name"
        content = write_subject(self._file(name), subject)
        x, y, z = subject.mask.shape
        entry = Entry(name=name, sha256=hashlib.sha256(content).hexdigest(), shape=(x, y, z), record=subject.record)
        self._journal.write(name, entry)
        return entry

    def journal(self) -> dict[str, Entry]:
        """Entries of all subjects that are written whole; a damaged entry counts as not there."""
        return {entry.name: entry for entry in self._journal.entries() if self._file(entry.name).is_file()}

    def journal_entry(self, name: str) -> Entry | None:
        """The entry of one subject, if it is written whole."""
        entry = self._journal.entry(name)
        return entry if entry and entry.name == name and self._file(name).is_file() else None

    def forget(self, name: str) -> None:
        """Take a subject out of the journal; its file stays until it is written anew."""
        self._journal.forget(name)

    def write_index(self, splits: Mapping[str, Split], *, seed: int) -> "Store":
        """Rebuild ``store.json`` from the journal: every subject that has a split."""
        entries = tuple(entry for entry in self.journal().values() if entry.name in splits)
        check_splits(splits, [entry.source for entry in entries])
        index = self.index.model_copy(
            update={"entries": entries, "splits": {e.name: splits[e.name] for e in entries}, "split_seed": seed}
        )
        write_text(self.folder / "store.json", index.model_dump_json(indent=2) + "\n")
        return Store(self.folder, index)

    def problems(self) -> Iterator[str]:
        """One sentence for each subject whose file is gone or no longer what was written."""
        for entry in self.index.entries:
            path = self._path(entry.name)
            if not path.is_file():
                yield f"{path}: the file is gone. Run prepare again."
            elif file_hash(path) != entry.sha256:
                yield f"{path}: its contents are not what was written (the hash differs). Delete it and run prepare."

    def verify(self) -> None:
        """Refuse the store if any subject's file is gone or changed."""
        for problem in self.problems():
            raise DataError(problem)

    def _path(self, name: str) -> Path:
        return self._file(self.entry(name).name)

    def _file(self, name: str) -> Path:
        return self.folder / "subjects" / f"{name}.safetensors"


def _read_index(path: Path) -> Index:
    try:
        values = bounded.read_json(path, limit=bounded.LARGEST_INDEX_BYTES)
    except OSError as error:
        raise DataError(f"{path}: no store there ({error.strerror}). Make one with 'tensorldm prepare'.") from error
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}). Prepare into a new folder.") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise DataError(f"{path}: not the index of a store. Give the folder that 'tensorldm prepare' made.")
    if values.get("version") != VERSION:
        raise DataError(
            f"{path}: a store of version {values.get('version')}, this program reads version {VERSION}. "
            "Prepare the scans again into a new folder."
        )
    try:
        return Index.model_validate(values)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise DataError(f"{path}: damaged at '{where}'. Prepare the scans again into a new folder.") from error


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    keys = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    return "; ".join(f"{key}: {before.get(key)} before, {now.get(key)} now" for key in keys)
