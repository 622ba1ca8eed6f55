"""A folder of real anatomies as a source: each sub-folder by its kind, each packed file as it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.bundle_names import PAPER_BUNDLES
from tensorldm.cohort.manifest import MANIFEST_FILE, Entry, read_manifest
from tensorldm.cohort.templates.packing import SUFFIX, load_anatomy, save_anatomy
from tensorldm.cohort.templates.request import GridChoice, Request
from tensorldm.cohort.templates.volumes import moved
from tensorldm.errors import DataError
from tensorldm.imaging.heads import SPLITS


class Kind(NamedTuple):
    """One way of storing an anatomy."""

    description: str
    recognises: Callable[[Path], bool]
    convert: Callable[..., Anatomy]


def kinds() -> tuple[Kind, ...]:
    """Every converter. Imported late: packed anatomies load where no imaging library is installed."""
    from tensorldm.cohort.templates import fibre_files, maps, scans

    return (
        Kind("tensor.nii.gz", maps.is_tensor, maps.convert_tensor),
        Kind("dti_FA and dti_V1 or dti_eigvec1", maps.is_maps, maps.convert_maps),
        Kind("a .fib.gz template", fibre_files.is_fib, fibre_files.convert_fib),
        Kind("FA and peaks", fibre_files.is_peaks, fibre_files.convert_peaks),
        Kind("dwi.nii.gz with gradients", scans.is_scan, scans.convert_scan),
    )


@dataclass(frozen=True, eq=False)
class TemplateSource:
    """Real anatomies of a folder, all of them or those of one split.

    ``grid`` is where folders are converted to; packed anatomies keep their own. ``bundles`` are kept where they are
    known; give an empty tuple for training.
    """

    folder: Path
    split: str | None = None
    grid: GridChoice = field(default_factory=GridChoice)
    bundles: tuple[str, ...] = PAPER_BUNDLES

    def __post_init__(self) -> None:
        if self.split is not None and self.split not in SPLITS:
            raise DataError(f"There is no split '{self.split}'. Give one of {', '.join(SPLITS)}.")
        if not self._places:
            raise DataError(
                f"{self.folder}: no anatomies are here. Each is a file NAME{SUFFIX}, or a folder with "
                f"{'; '.join(kind.description for kind in kinds())}."
            )
        unknown = sorted(set(self._places) - set(self._entries))
        if self.split is not None and unknown:
            raise DataError(
                f"{self.folder / unknown[0]}: nothing says which split it belongs to. "
                f"Add it to {self.folder / MANIFEST_FILE} (name, person, split), or use the folder without splits."
            )

    @property
    def names(self) -> Sequence[str]:
        """Every anatomy of this source; empty where the folder has none of this split."""
        return [name for name in self._places if self.split is None or self._entries[name].split == self.split]

    def load(self, name: str, *, device: torch.device | str = "cpu") -> Anatomy:
        """Convert or unpack one anatomy."""
        if name not in self.names:
            raise DataError(f"{self.folder}: there is no anatomy '{name}' here. Give one of {', '.join(self.names)}.")
        place = self._places[name]
        if place.suffix == SUFFIX:
            return moved(self._unpack(place), device)
        kind = next(kind for kind in kinds() if kind.recognises(place))
        return moved(kind.convert(place, self._request(name)), device)

    def pack(self, out: Path) -> list[Path]:
        """Convert every anatomy of this source into a folder of packed ones; those already there are kept."""
        written = []
        for name in self.names:
            path = out / f"{name}{SUFFIX}"
            if not path.is_file():
                save_anatomy(path, self.load(name))
            written.append(path)
        return written

    def _unpack(self, path: Path) -> Anatomy:
        anatomy = load_anatomy(path)
        kept = {name: bundle for name, bundle in anatomy.bundles.items() if name in self.bundles}
        return replace(anatomy, bundles=kept)

    def _request(self, name: str) -> Request:
        person = self._entries[name].person if name in self._entries else name
        return Request(name=name, person=person, grid=self.grid, bundles=self.bundles)

    @cached_property
    def _entries(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in read_manifest(self.folder)}

    @cached_property
    def _places(self) -> dict[str, Path]:
        """Where each anatomy lies, by name."""
        if not self.folder.is_dir():
            raise DataError(f"{self.folder}: there is no such folder. Give a folder of anatomies.")
        inside = sorted(self.folder.iterdir())
        packed = {path.stem: path for path in inside if path.suffix == SUFFIX}
        folders = [path for path in inside if path.is_dir()]
        converters = kinds() if folders else ()
        found = {path.name: path for path in folders if any(kind.recognises(path) for kind in converters)}
        return {**found, **packed}
