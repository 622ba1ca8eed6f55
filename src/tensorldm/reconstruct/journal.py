"""Which scans are done: the same inputs and settings are not reconstructed twice into one folder."""

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tensorldm import __version__
from tensorldm.config.reading import Strict
from tensorldm.errors import DataError
from tensorldm.imaging.gradients import FslFiles, find_gradients
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.reconstruct.summary import Summary
from tensorldm.work.journal import Journal
from tensorldm.work.sources import SourceFile, describe_sources

FOLDER: Final = Path(".tensorldm") / "journal"
"""Inside the output folder; hidden, so that listings and dataset crawlers pass over it."""


class WrittenFile(Strict):
    """A file of a result; its size tells a whole one from what a broken disk or copy left of it."""

    path: str
    """Relative to the output folder."""
    num_bytes: int


class Entry(Strict):
    """One scan that is done."""

    name: str
    inputs_sha256: str
    """Hash of the inputs' contents and of everything else that decides the result."""
    sources: tuple[SourceFile, ...]
    brain: str
    written: tuple[WrittenFile, ...]
    summary: Summary


def journal_of(out: Path) -> Journal[Entry]:
    """The journal of an output folder."""
    return Journal(out / FOLDER, Entry)


def find_done(out: Path, files: InputFiles, *, recipe: str) -> Entry | None:
    """The entry of a scan whose result is there, whole, and made from these inputs by this recipe."""
    entry = journal_of(out).entry(files.name)
    if entry is None or entry.name != files.name or not _is_whole(entry, out):
        return None
    sources = describe_inputs(files, known=entry.sources)
    return entry if inputs_hash(sources, recipe) == entry.inputs_sha256 else None


def note_done(
    out: Path,
    name: str,
    *,
    sources: tuple[SourceFile, ...],
    recipe: str,
    brain: str,
    written: Iterable[Path],
    summary: Summary,
) -> None:
    """Write a scan down, after its files."""
    entry = Entry(
        name=name,
        inputs_sha256=inputs_hash(sources, recipe),
        sources=sources,
        brain=brain,
        written=tuple(_described(path, out) for path in sorted(written)),
        summary=summary,
    )
    journal_of(out).write(name, entry)


def describe_inputs(files: InputFiles, *, known: Iterable[SourceFile] = ()) -> tuple[SourceFile, ...]:
    """Every input by name and contents, gradients that were found included."""
    paths = list(files.files)
    for image in files.images:
        with suppress(DataError):
            found = find_gradients(image)
            paths += list(found) if isinstance(found, FslFiles) else [found]
    return describe_sources([(path.name, path.absolute()) for path in dict.fromkeys(paths)], known=known)


def recipe_of(settings: Any, **others: object) -> str:
    """Everything that decides a result but the scan itself, as one text; settings are a dataclass."""
    return json.dumps({"tensorldm": __version__, "settings": asdict(settings), **others}, sort_keys=True)


def inputs_hash(sources: Iterable[SourceFile], recipe: str) -> str:
    """One hash of contents and recipe; where the files lie does not count."""
    contents = sorted((source.role, source.sha256) for source in sources)
    return hashlib.sha256(json.dumps([contents, recipe]).encode()).hexdigest()


def _is_whole(entry: Entry, out: Path) -> bool:
    with suppress(OSError):
        return all((out / file.path).stat().st_size == file.num_bytes for file in entry.written)
    return False


def _described(path: Path, out: Path) -> WrittenFile:
    return WrittenFile(path=path.relative_to(out).as_posix(), num_bytes=path.stat().st_size)
