"""Which files make a scan: a series and what stands beside it, or one file per volume; only names are looked at."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorldm.errors import DataError
from tensorldm.imaging.header import SUFFIXES, stem
from tensorldm.imaging.layouts import ScanFiles, find_scans, list_files
from tensorldm.imaging.mask_files import find_mask

BIDS_SERIES = re.compile(r"sub-[a-zA-Z0-9+]+(_[a-zA-Z]+-[a-zA-Z0-9+]+)*_dwi")


@dataclass(frozen=True)
class Given:
    """Files that the user names instead of letting them be found; they belong to one scan."""

    bval: Path | None = None
    bvec: Path | None = None
    grad: Path | None = None
    mask: Path | None = None

    @property
    def any(self) -> bool:
        """Whether anything was named."""
        return any((self.bval, self.bvec, self.grad, self.mask))


@dataclass(frozen=True)
class InputFiles:
    """One scan to reconstruct."""

    name: str
    """Unique among the inputs of a call; what its folder is called."""
    images: tuple[Path, ...]
    """A 4D series, or files whose volumes are joined in this order."""
    bval: Path | None = None
    bvec: Path | None = None
    grad: Path | None = None
    mask: Path | None = None
    entities: str | None = None
    """``sub-01_ses-2`` where the name follows BIDS."""
    problem: str = ""
    """Why it may not be read, told when it would be."""

    @property
    def image(self) -> Path:
        """The file that messages name."""
        return self.images[0]

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that is known by name."""
        return (*self.images, *(path for path in (self.bval, self.bvec, self.grad, self.mask) if path is not None))


def gather(sources: Sequence[Path], *, given: Given, join: bool = False) -> list[InputFiles]:
    """The scans that the user's words mean: files, HCP trees, BIDS datasets; or the parts of one scan to be joined."""
    if not sources:
        raise DataError("No input: give a 4D NIfTI series, a BIDS dataset, an HCP tree or a DICOM folder.")
    missing = next((source for source in sources if not source.exists() and not source.name.endswith(SUFFIXES)), None)
    if missing is not None:
        raise DataError(f"{missing}: there is no such file or folder. Check the path.")
    if join:
        return [_joined(sources, given)]
    files = [source for source in sources if not source.is_dir()]
    scans = list_files(files) + [scan for source in sources if source.is_dir() for scan in find_scans(source)]
    if given.any and len(scans) > 1:
        raise DataError(
            f"{len(scans)} scans, but gradients or a mask are named for one. Leave them to be found beside each scan, "
            "or give one scan at a time."
        )
    inputs = [_single(scan, given) for scan in scans]
    names = [each.name for each in inputs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{twice[0]}: two scans would have this name. Give them one at a time.")
    return inputs


def _single(scan: ScanFiles, given: Given) -> InputFiles:
    named = any((given.bval, given.bvec, given.grad))
    name = stem(scan.dwi)
    return InputFiles(
        name=scan.name.removesuffix("_dwi") if BIDS_SERIES.fullmatch(name) else scan.name,
        images=(scan.dwi,),
        bval=given.bval if named else scan.bval,
        bvec=given.bvec if named else scan.bvec,
        grad=given.grad,
        mask=given.mask or scan.mask or find_mask(scan.dwi),
        problem=scan.problem,
        entities=name.removesuffix("_dwi") if BIDS_SERIES.fullmatch(name) else None,
    )


def _joined(sources: Sequence[Path], given: Given) -> InputFiles:
    first = sources[0]
    return InputFiles(
        name=stem(first),
        images=tuple(sources),
        bval=given.bval,
        bvec=given.bvec,
        grad=given.grad,
        mask=given.mask or find_mask(first),
    )
