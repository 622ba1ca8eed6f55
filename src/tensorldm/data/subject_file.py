"""One prepared subject as one file: safetensors, so that it maps into memory and nothing in it can run.

Everything is kept in full width. Half-width DWIs would save a fifth of a file and cost a rounding that somebody
would have to reason about later. Axes: c DWI volume, d tensor component (6), x y z space (RAS).
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tensorldm import bounded
from tensorldm.components import NUM_COMPONENTS
from tensorldm.data.subject import Record, Subject
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_bytes

FORMAT_VERSION = 1
METADATA = "tensorldm_subject"
VOXEL_ARRAYS = ("dwi", "components", "mask")


def write_subject(path: Path, subject: Subject) -> bytes:
    """Write a subject whole or not at all, and give its bytes; the same subject gives the same bytes."""
    arrays = {
        "dwi": subject.dwi.to(torch.float32).contiguous(),
        "components": subject.components.to(torch.float32).contiguous(),
        "mask": subject.mask.contiguous(),
        "bvals": subject.bvals.to(torch.float64),
        "directions": subject.directions.to(torch.float64).contiguous(),
        "affine": torch.from_numpy(np.ascontiguousarray(subject.affine, dtype=np.float64)),
    }
    # One key only: safetensors writes several in an order that changes from run to run.
    about = {"format": FORMAT_VERSION, "record": subject.record.model_dump(mode="json")}
    content = safetensors.torch.save(arrays, {METADATA: json.dumps(about)})
    write_bytes(path, content)
    return content


def read_subject(path: Path) -> Subject:
    """A whole subject."""
    with _opened(path) as file:
        return _subject(path, file, {name: file.get_tensor(name) for name in VOXEL_ARRAYS}, corner=(0, 0, 0))


def read_box(path: Path, corner: tuple[int, int, int], *, size: tuple[int, int, int]) -> Subject:
    """A box of a subject, read alone from the file; what lies outside the volume is zero."""
    with _opened(path) as file:
        return _subject(path, file, {n: _read_box(file, n, corner, size) for n in VOXEL_ARRAYS}, corner=corner)


def read_mask(path: Path) -> Tensor:
    """The brain mask alone."""
    with _opened(path) as file:
        mask: Tensor = file.get_tensor("mask")
        return mask


def _subject(path: Path, file: Any, voxels: dict[str, Tensor], *, corner: tuple[int, int, int]) -> Subject:
    affine = file.get_tensor("affine").numpy().copy()
    affine[:3, 3] += affine[:3, :3] @ np.asarray(corner)
    try:
        record = Record.model_validate(_about(file)["record"])
    except (KeyError, ValidationError) as error:
        raise DataError(
            f"{path}: the record of this prepared subject is damaged. Delete it and run prepare."
        ) from error
    return Subject(
        record=record,
        dwi=voxels["dwi"],
        bvals=file.get_tensor("bvals"),
        directions=file.get_tensor("directions"),
        components=voxels["components"],
        mask=voxels["mask"],
        affine=affine,
    )


def _read_box(file: Any, name: str, corner: tuple[int, int, int], size: tuple[int, int, int]) -> Tensor:
    lazy = file.get_slice(name)
    shape = tuple(lazy.get_shape())
    lead, space = shape[:-3], shape[-3:]
    inner, outer = [], []
    for start, length, extent in zip(corner, size, space, strict=True):
        low, high = max(start, 0), max(min(start + length, extent), max(start, 0))
        inner.append(slice(low, high))
        outer.append(slice(low - start, high - start))
    everything = [slice(None)] * len(lead)
    part = lazy[(*everything, *inner)]
    box = torch.zeros((*lead, *size), dtype=part.dtype)
    box[(*everything, *outer)] = part
    return box


def _about(file: Any) -> dict[str, Any]:
    try:
        about = bounded.parse_json((file.metadata() or {}).get(METADATA, "{}"))
    except ValueError:  # not written by us
        return {}
    return about if isinstance(about, dict) else {}


def _check_arrays(path: Path, file: Any) -> None:
    """Every array, of its kind and of shapes that belong together, before any is read: stores travel."""
    found = {name: (lazy.get_dtype(), *lazy.get_shape()) for name in file.keys() if (lazy := file.get_slice(name))}  # noqa: SIM118  not a dict
    _, *space = found.get("mask", ("",))
    volumes = found.get("bvals", ("", 0))[-1]
    expected = {
        "dwi": ("F32", volumes, *space),
        "components": ("F32", NUM_COMPONENTS, *space),
        "mask": ("BOOL", *space),
        "bvals": ("F64", volumes),
        "directions": ("F64", volumes, 3),
        "affine": ("F64", 4, 4),
    }
    if found != expected or len(space) != 3 or 0 in space:
        raise DataError(f"{path}: its arrays are not those of a prepared subject. Delete it and run prepare.")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            found = _about(file).get("format", "unknown")
            if found != FORMAT_VERSION:
                raise DataError(
                    f"{path}: a prepared subject of format {found}, this version reads {FORMAT_VERSION}. "
                    "Prepare the scan again."
                )
            _check_arrays(path, file)
            yield file
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path}: the prepared subject cannot be read ({error}). Run prepare again.") from error
