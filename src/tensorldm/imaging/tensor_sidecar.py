"""The JSON file beside a tensor image: order, frame, units and origin are said, never guessed.

Six numbers per voxel can be read in dozens of ways that all look like a brain. A file written here always has a
sidecar; a file from elsewhere needs one, or the user names its convention.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorldm import bounded
from tensorldm.components import CONVENTIONS, Convention
from tensorldm.errors import DataError
from tensorldm.imaging.header import read_header, stem

UNITS = "mm^2/s"


@dataclass(frozen=True)
class Provenance:
    """Where a tensor comes from; what is not known stays empty."""

    method: str | None = None
    subject: str | None = None
    mask: Path | None = None
    """Brain mask on the same grid."""
    volumes: tuple[int, ...] | None = None
    """Indices, from 0, of the volumes of the series that the tensor was made from."""
    anatomy: str | None = None
    """The independent anatomy behind the subject: a person, or the head that virtual subjects were made from."""

    def notes_for(self, path: Path) -> dict[str, Any]:
        """The sidecar keys of a tensor at ``path``; the mask is named relative to it, so that a folder can move."""
        keys = {
            "Method": self.method,
            "Subject": self.subject,
            "Mask": None if self.mask is None else _relative(path, self.mask),
            "Volumes": None if self.volumes is None else list(self.volumes),
            "AnatomySource": self.anatomy,
        }
        return {key: value for key, value in keys.items() if value is not None}


def sidecar_path(path: Path) -> Path:
    """Where an image's JSON sidecar stands."""
    return path.with_name(f"{stem(path)}.json")


def convention_notes(kind: Convention) -> dict[str, Any]:
    """The sidecar keys that say how the six numbers are stored."""
    return {
        "TensorConvention": kind.name,
        "ComponentOrder": list(kind.order),
        "TensorFrame": kind.frame,
        "Units": UNITS,
    }


def read_sidecar(path: Path) -> dict[str, Any]:
    """What the sidecar of an image says; nothing where there is none."""
    beside = sidecar_path(path)
    if not beside.is_file():
        return {}
    try:
        note = bounded.read_json(beside)
    except (OSError, ValueError) as error:
        raise DataError(f"{beside}: not readable as JSON ({error}). Mend it, or move it away.") from error
    if not isinstance(note, dict):
        raise DataError(f"{beside}: expected named values, found {type(note).__name__}. Mend it, or move it away.")
    return note


def read_convention(path: Path, *, default: str | None = None) -> str:
    """The convention that a tensor image's sidecar names; ``default`` is for an image whose sidecar does not."""
    beside, note = sidecar_path(path), read_sidecar(path)
    for given, source in ((default, path), (note.get("TensorConvention"), beside)):
        if given is not None and not (isinstance(given, str) and given in CONVENTIONS):
            raise DataError(f"{source}: there is no tensor convention '{given}'. Give one of {', '.join(CONVENTIONS)}.")
    name: str | None = note.get("TensorConvention", default)
    if name is None:
        _require_six_components(path)
        raise DataError(
            f"{path}: nothing says how its six components are stored. Give --convention {'|'.join(CONVENTIONS)}, "
            f"or put a {beside.name} with 'TensorConvention' beside it."
        )
    _refuse_contradiction(beside, note, CONVENTIONS[name])
    return name


def read_provenance(path: Path) -> Provenance:
    """What the sidecar says of a tensor's origin."""
    note = read_sidecar(path)
    method, subject, mask, volumes = (note.get(key) for key in ("Method", "Subject", "Mask", "Volumes"))
    anatomy = note.get("AnatomySource")
    return Provenance(
        method=None if method is None else str(method),
        subject=None if subject is None else str(subject),
        mask=None if mask is None else _near(path, str(mask)),
        volumes=tuple(index for index in volumes if isinstance(index, int)) if isinstance(volumes, list) else None,
        anatomy=None if anatomy is None else str(anatomy),
    )


def _require_six_components(path: Path) -> None:
    """A map or a series is no tensor, whatever its convention."""
    shape = read_header(path).shape
    if len(shape) < 4 or shape[-1] != 6:
        found = "one value" if len(shape) < 4 else f"{shape[-1]} values"
        raise DataError(
            f"{path}: {found} in a voxel, and a tensor has six. Give the tensor image, such as tensor.nii.gz."
        )


def _relative(path: Path, mask: Path) -> str | None:
    """The mask as seen from the image; None where a reader would refuse it."""
    seen = Path(os.path.relpath(mask, path.parent))
    return seen.as_posix() if _stays_near(seen) else None


def _near(path: Path, mask: str) -> Path:
    """A mask that a sidecar names: a stranger's file may point beside itself, not anywhere on the disk."""
    if not _stays_near(Path(mask)):
        raise DataError(
            f"{sidecar_path(path)}: names a mask outside its folder and its neighbours ({mask}). "
            "Put the mask beside the image and mend the sidecar."
        )
    return path.parent / mask


def _stays_near(relative: Path) -> bool:
    """In the image's folder, or in one beside it: a run keeps images and masks in folders of their own."""
    normal = Path(os.path.normpath(relative))
    return not normal.is_absolute() and normal.parts[:2].count("..") < 2


def _refuse_contradiction(beside: Path, note: Mapping[str, Any], kind: Convention) -> None:
    """A sidecar that contradicts itself, or another unit, is refused: a wrong tensor looks like a tensor."""
    for key, expected in convention_notes(kind).items():
        found = note.get(key, expected)
        if found != expected:
            raise DataError(
                f"{beside}: '{key}' is {found}, expected {expected} for the convention '{kind.name}'. "
                "Find out how the image was written, then convert it or mend the sidecar."
            )
