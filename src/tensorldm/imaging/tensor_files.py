"""Tensor images: a NIfTI file, and a sidecar that says in which convention its six numbers are stored.

The convention (order, frame, array shape) is never guessed: it comes from the sidecar or from the caller.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_json
from tensorldm.imaging.frames import convention_named, decode_tensor, encode_tensor
from tensorldm.imaging.nifti import NO_INTENT, Intent, read_volume, write_volume
from tensorldm.imaging.tensor_sidecar import (
    Provenance,
    convention_notes,
    read_convention,
    read_provenance,
    sidecar_path,
)
from tensorldm.imaging.volume import Space, Volume

__all__ = [
    "DEFAULT_CONVENTION",
    "Provenance",
    "read_convention",
    "read_provenance",
    "read_tensor",
    "sidecar_path",
    "write_tensor",
]

DEFAULT_CONVENTION = "mrtrix"
"""Scanner axes survive a flip or permutation of the array, and MRtrix3 reads the file as it is."""
SYMMETRIC_MATRIX = Intent(1005, (3.0,))
"""NIFTI_INTENT_SYMMATRIX of 3×3."""


def write_tensor(
    path: Path,
    packed: Float[ndarray, "x y z 6"],
    *,
    space: Space,
    convention: str = DEFAULT_CONVENTION,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write a tensor in image axes (mm²/s) in a program's convention, and the sidecar that names it.

    ``notes`` are further keys of the sidecar.
    """
    kind = convention_named(convention)
    intent = SYMMETRIC_MATRIX if kind.five_dimensional else NO_INTENT
    array = encode_tensor(packed, space, convention).astype(np.float32)
    # Sidecar first: a tensor file without its convention is the one state that must not occur.
    write_json(sidecar_path(path), {**(notes or {}), **convention_notes(kind)})
    write_volume(path, Volume(array, space), intent=intent)


def read_tensor(path: Path, *, convention: str | None = None) -> Volume:
    """A tensor as six components in image axes; without ``convention`` its sidecar must name one.

    Voxels outside the brain may be NaN, as some programs leave them: who uses a voxel checks it.
    """
    named = read_convention(path) if convention is None else convention
    volume = read_volume(path)
    try:
        packed = decode_tensor(volume.data, volume.space, named)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return Volume(packed, volume.space)
