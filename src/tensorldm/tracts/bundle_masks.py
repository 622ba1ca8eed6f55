"""Folders of bundle masks: TractSeg's own layout, or plain NAME.nii.gz files as virtual subjects have them.

Masks come from the reference (or the truth) once and serve every method. A mask may lie on any grid: streamlines are
looked up in it by their place in the world.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tensorldm.errors import DataError
from tensorldm.imaging.bundle_names import PAPER_BUNDLES
from tensorldm.imaging.header import SUFFIXES, stem
from tensorldm.imaging.nifti import read_mask
from tensorldm.tracts.regions import Region, look_up

SEGMENTATIONS, ENDINGS, EXCLUSIONS = "bundle_segmentations", "endings_segmentations", "exclusions"
"""TractSeg's folders, and ours for regions that no streamline of a bundle may enter."""
BEGINNING, END = "_b", "_e"
"""What TractSeg adds to a bundle's name for its two endings."""
LEAST_INSIDE: Final = 0.5
"""A bundle of which less lies in the brain mask belongs to another brain or another space."""


@dataclass(frozen=True, eq=False)
class BundleMask:
    """Where a bundle runs and, where somebody says so, where it ends and where it must not go."""

    name: str
    inside: Region
    endings: tuple[Region, Region] | None = None
    exclusion: Region | None = None


@dataclass(frozen=True)
class BundleFiles:
    """The files of one bundle."""

    inside: Path
    endings: tuple[Path, Path] | None
    exclusion: Path | None

    @property
    def paths(self) -> list[Path]:
        """Every file that decides which streamlines belong to the bundle."""
        rest = [*(self.endings or ()), *([] if self.exclusion is None else [self.exclusion])]
        return [self.inside, *rest]


def list_bundles(folder: Path) -> dict[str, Path]:
    """The masks of a folder by bundle, in order of their names; only names are looked at."""
    where = _segmentations(folder)
    if not where.is_dir():
        raise DataError(f"{folder}: there is no such folder. Give a folder of bundle masks (CST_left.nii.gz, …).")
    paths = sorted(path for path in where.iterdir() if path.name.endswith(SUFFIXES))
    found = {stem(path): path for path in paths if not stem(path).endswith((BEGINNING, END))}
    if not found:
        raise DataError(f"{folder}: no bundle masks. Give a folder of files such as CST_left.nii.gz.")
    return found


def choose_bundles(folder: Path, names: Sequence[str] = ()) -> list[str]:
    """Which bundles to look at: those asked for, which must be there, or as many of the paper's twelve as are."""
    there = list_bundles(folder)
    absent = [name for name in names if name not in there]
    if absent:
        raise DataError(f"{folder}: no mask of '{absent[0]}'. There are {', '.join(there)}.")
    chosen = list(names) or [name for name in PAPER_BUNDLES if name in there]
    if not chosen:
        raise DataError(
            f"{folder}: none of {', '.join(PAPER_BUNDLES)}. Name bundles of this folder with --bundle: "
            f"{', '.join(there)}."
        )
    return chosen


def read_bundle(folder: Path, name: str) -> BundleMask:
    """One bundle with its endings and exclusion, where the folder has them."""
    files = find_files(folder, name)
    return BundleMask(
        name,
        _read(files.inside),
        endings=None if files.endings is None else (_read(files.endings[0]), _read(files.endings[1])),
        exclusion=None if files.exclusion is None else _read(files.exclusion),
    )


def find_files(folder: Path, name: str) -> BundleFiles:
    """Where one bundle's masks are; only names are looked at."""
    root = _segmentations(folder).parent
    places = (_segmentations(folder), root / ENDINGS)
    beginning, end = (_find(places, f"{name}{mark}") for mark in (BEGINNING, END))
    return BundleFiles(
        list_bundles(folder)[name],
        endings=None if beginning is None or end is None else (beginning, end),
        exclusion=_find((root / EXCLUSIONS, _segmentations(folder) / EXCLUSIONS), name),
    )


def check_place(folder: Path, bundle: BundleMask, *, brain: Region) -> None:
    """Refuse masks that lie elsewhere than the brain that is tracked."""
    voxels = np.argwhere(bundle.inside.mask)
    affine = bundle.inside.space.affine
    share = look_up(brain, (voxels @ affine[:3, :3].T + affine[:3, 3])).mean()
    if share < LEAST_INSIDE:
        raise DataError(
            f"{folder}: only {share:.0%} of {bundle.name} lies in the brain mask: it is from another brain or space. "
            "Give masks made from the reference of this subject."
        )


def _segmentations(folder: Path) -> Path:
    within = folder / SEGMENTATIONS
    return within if within.is_dir() else folder


def _find(folders: Sequence[Path], name: str) -> Path | None:
    paths = (folder / f"{name}{suffix}" for folder in folders for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path) -> Region:
    mask, space = read_mask(path)
    if not mask.any():
        raise DataError(f"{path}: the mask is empty, no voxel is above 0.5. Leave the file out, or make it again.")
    return Region(mask, space)
