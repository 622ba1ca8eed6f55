"""Tensor images: a NIfTI file, and a sidecar that says in which convention its six numbers are stored.

The convention (order, frame, array shape) is never guessed: it comes from the sidecar or from the caller.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.components import CONVENTIONS
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_json
from tensorldm.imaging.frames import convention_named, decode_tensor, encode_tensor
from tensorldm.imaging.nifti import NO_INTENT, Intent, check_finite, read_volume, stem, write_volume
from tensorldm.imaging.volume import Space, Volume

SYMMETRIC_MATRIX = Intent(1005, (3.0,))
"""NIFTI_INTENT_SYMMATRIX of 3×3."""


def write_tensor(
    path: Path,
    packed: Float[ndarray, "x y z 6"],
    *,
    space: Space,
    convention: str,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a tensor in image axes (mm²/s) in a program's convention, and the sidecar that names it.

    ``notes`` are further keys of the sidecar.
    """
    kind = convention_named(convention)
    intent = SYMMETRIC_MATRIX if kind.five_dimensional else NO_INTENT
    array = encode_tensor(packed, space, convention).astype(np.float32)
    sidecar = {
        "TensorConvention": kind.name,
        "ComponentOrder": list(kind.order),
        "TensorFrame": kind.frame,
        "Units": "mm^2/s",
    }
    # Sidecar first: a tensor file without its convention is the one state that must not occur.
    write_json(sidecar_path(path), {**(notes or {}), **sidecar})
    write_volume(path, Volume(array, space), intent=intent)


def read_tensor(path: Path, *, convention: str | None = None) -> Volume:
    """A tensor as six components in image axes; without ``convention`` its sidecar must name one."""
    named = read_convention(path) if convention is None else convention
    volume = read_volume(path)
    check_finite(volume, path)
    try:
        packed = decode_tensor(volume.data, volume.space, named)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return Volume(packed, volume.space)


def read_convention(path: Path) -> str:
    """The convention that a tensor image's sidecar names."""
    sidecar = sidecar_path(path)
    known = ", ".join(CONVENTIONS)
    if not sidecar.is_file():
        raise DataError(
            f"{path}: no sidecar {sidecar.name} says how its tensor is stored. Give --convention, one of {known}."
        )
    try:
        name = json.loads(sidecar.read_text(encoding="utf-8")).get("TensorConvention")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{sidecar}: not a readable JSON sidecar ({error}). Mend it, or give --convention.") from error
    if name not in CONVENTIONS:
        raise DataError(f"{sidecar}: its TensorConvention is {name!r}, expected one of {known}. Give --convention.")
    return str(name)


def sidecar_path(path: Path) -> Path:
    """Where an image's JSON sidecar stands."""
    return path.with_name(f"{stem(path)}.json")
