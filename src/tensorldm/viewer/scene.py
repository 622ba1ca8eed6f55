"""What there is to look at below the folders that a user names: reconstructions, and tracts that go with them.

Every file gets a key here. A browser only ever sends keys back, so that nothing it says can name a file.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tensorldm.errors import DataError
from tensorldm.imaging.header import SUFFIXES
from tensorldm.imaging.tensor_files import read_convention, read_provenance
from tensorldm.reconstruct.naming import Naming

BIDS_TENSOR = "_model-DTI_param-tensor_dwimap"
REFERENCE = "reference"
"""A folder of this name holds what the others are compared with."""
TRACT_SUFFIXES = (".tck", ".trx")
MOST_RECONSTRUCTIONS = 200
MOST_TRACTS = 100
LARGEST_TRACT_BYTES = 400 * 2**20
"""A browser holds a tractogram several times over; more than this makes a laptop stop answering."""


@dataclass(frozen=True)
class Shown:
    """A tensor image and what is said about it."""

    key: str
    tensor: Path
    convention: str
    method: str
    subject: str | None
    naming: Naming
    """Where the maps beside the tensor are; paths are absolute."""
    place: str | None = None
    """Its folder within the one that the user named, where method and subject do not tell it from another."""

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.tensor.parent

    @property
    def title(self) -> str:
        """What the page calls it."""
        return self.method if self.subject is None else f"{self.subject} · {self.method}"


@dataclass(frozen=True)
class TractFile:
    """A tractogram in world coordinates."""

    key: str
    path: Path
    owner: str | None
    """Key of the reconstruction whose folder it lies in; None: it goes with all of them."""

    @property
    def title(self) -> str:
        """What the page calls it."""
        return self.path.stem


@dataclass(frozen=True)
class Scene:
    """Everything that can be shown, by key."""

    shown: tuple[Shown, ...]
    tracts: tuple[TractFile, ...]
    references: tuple[str, ...]
    """Keys of the reconstructions that angles and errors refer to, the user's own choice first."""

    def find(self, key: str) -> Shown | None:
        """A reconstruction by its key."""
        return next((each for each in self.shown if each.key == key), None)

    def reference_of(self, key: str) -> Shown | None:
        """What a reconstruction is compared with: another one, never of another subject."""
        shown = self.find(key)
        for reference in map(self.find, self.references):
            if shown is None or reference is None or reference.key == key:
                continue
            if None in (shown.subject, reference.subject) or shown.subject == reference.subject:
                return reference
        return None

    def find_tract(self, key: str) -> TractFile | None:
        """A tractogram by its key."""
        return next((each for each in self.tracts if each.key == key), None)

    def with_shown(self, more: Shown) -> "Scene":
        """One more reconstruction; it takes the place of one with the same key."""
        return replace(self, shown=(*(each for each in self.shown if each.key != more.key), more))

    def without(self, key: str) -> "Scene":
        """Without the reconstruction of this key."""
        return replace(self, shown=tuple(each for each in self.shown if each.key != key))


def find_scene(sources: Sequence[Path], *, reference: Path | None = None, convention: str | None = None) -> Scene:
    """Look below the folders (or at the tensor files) named; ``convention`` is for files that do not say theirs."""
    named = [*sources, *([reference] if reference is not None else [])]
    paths = list(dict.fromkeys(path.resolve() for source in named for path in _tensors_in(source)))
    if len(paths) > MOST_RECONSTRUCTIONS:
        raise DataError(
            f"{sources[0]}: {len(paths)} tensor images, more than the {MOST_RECONSTRUCTIONS} that one page lists. "
            "Give the folder of one subject."
        )
    found = [look_at(path, f"r{number}", convention=convention) for number, path in enumerate(paths)]
    shown = tuple(_told_apart(found))
    return Scene(shown, _tracts(sources, shown), _reference_keys(shown, reference))


def look_at(tensor: Path, key: str, *, convention: str | None = None) -> Shown:
    """What the names and the sidecar say of a tensor image; no voxel is read."""
    origin = read_provenance(tensor)
    return Shown(
        key=key,
        tensor=tensor,
        convention=read_convention(tensor, default=convention),
        method=origin.method or tensor.parent.name,
        subject=origin.subject,
        naming=_naming_of(tensor),
    )


def is_tensor(path: Path) -> bool:
    """Whether a file has the name that reconstruct gives a tensor image."""
    return any(path.name == f"tensor{end}" or path.name.endswith(f"{BIDS_TENSOR}{end}") for end in SUFFIXES)


def _tensors_in(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise DataError(f"{source}: there is no such folder. Give the folder of a reconstruction.")
    found = sorted(path for path in _visible(source) if is_tensor(path))
    if not found:
        raise DataError(
            f"{source}: no tensor image (tensor.nii.gz) in it or below. Give a folder that `tensorldm reconstruct` or "
            "`tensorldm demo` wrote, or no folder to start with an empty page."
        )
    return found


def _visible(source: Path) -> Iterable[Path]:
    """Files below a folder; hidden ones are somebody's unfinished work."""
    for path in source.rglob("*"):
        if not any(part.startswith(".") for part in path.relative_to(source).parts) and path.is_file():
            yield path


def _told_apart(found: Sequence[Shown]) -> Iterable[Shown]:
    """Reconstructions with names that differ: every scanner calls its file dwi."""
    titles = [each.title for each in found]
    for each in found:
        alike = [other.folder for other in found if other.title == each.title]
        if titles.count(each.title) == 1:
            yield each
        else:
            root = Path(os.path.commonpath(alike))
            yield replace(each, place=each.folder.relative_to(root).as_posix())


def _naming_of(tensor: Path) -> Naming:
    entities, found, _ = tensor.name.partition(BIDS_TENSOR)
    return Naming(tensor.parent, entities if found else None)


def _tracts(sources: Sequence[Path], shown: Sequence[Shown]) -> tuple[TractFile, ...]:
    folders = [source if source.is_dir() else source.parent for source in sources]
    paths = sorted(
        {
            path.resolve()
            for folder in folders
            for path in _visible(folder)
            if path.suffix in TRACT_SUFFIXES and path.stat().st_size <= LARGEST_TRACT_BYTES
        }
    )
    return tuple(TractFile(f"t{n}", path, _owner(path, shown)) for n, path in enumerate(paths[:MOST_TRACTS]))


def _owner(path: Path, shown: Sequence[Shown]) -> str | None:
    """The reconstruction whose folder is nearest above; none where several share it or there is none."""
    for folder in path.parents:
        here = [each.key for each in shown if each.folder == folder]
        if here:
            return here[0] if len(here) == 1 else None
    return None


def _reference_keys(shown: Sequence[Shown], reference: Path | None) -> tuple[str, ...]:
    """The one that was named, then those in folders called reference."""
    named = set() if reference is None else {path.resolve() for path in _tensors_in(reference)}
    first = [each.key for each in shown if each.tensor in named]
    return tuple(dict.fromkeys((*first, *(each.key for each in shown if each.folder.name == REFERENCE))))
