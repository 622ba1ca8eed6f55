"""From named files to a scan in memory, headers and gradients first; parts of a scan in several files are joined."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorldm.errors import DataError, DataWarning
from tensorldm.imaging.gradient_files import read_fsl, read_mrtrix
from tensorldm.imaging.gradients import FslFiles, GradientTable, find_gradients, read_gradients
from tensorldm.imaging.mask import read_brain_mask
from tensorldm.imaging.nifti import check_finite, check_not_empty, read_header, read_volume, stem
from tensorldm.imaging.volume import Space, Volume
from tensorldm.reconstruct.inputs import InputFiles
from tensorldm.shapes import MaskImage


@dataclass(frozen=True, eq=False)
class ScanHeader:
    """What is known of a scan before its voxels are read."""

    space: Space
    gradients: GradientTable
    """Of all volumes, in image axes."""


def read_scan_header(files: InputFiles) -> ScanHeader:
    """Grid and gradients, and the mask's grid; refuses what headers and text files can tell."""
    if files.problem:
        raise DataError(files.problem)
    if len(files.images) == 1:
        gradients = read_gradients(files.image, bval=files.bval, bvec=files.bvec, grad=files.grad)
        space = read_header(files.image).space
    else:
        space, gradients = _joined_header(files)
    if files.mask is not None:
        _require_grid(files.mask, space, of=files.image)
    return ScanHeader(space, gradients)


def read_series(files: InputFiles, volumes: Sequence[int]) -> Volume:
    """The volumes of these numbers, in this order, finite and not empty."""
    if len(files.images) == 1:
        series = read_volume(files.image, volumes=volumes)
        check_finite(series, files.image, volumes=volumes)
        check_not_empty(series, files.image, volumes=volumes)
        return series
    parts = []
    for path in files.images:
        part = read_volume(path)
        check_finite(part, path)
        check_not_empty(part, path)
        parts.append(part.data.reshape(*part.space.shape, -1))
    whole = np.concatenate(parts, axis=-1)
    return Volume(np.ascontiguousarray(whole[..., list(volumes)]), read_header(files.image).space)


def read_given_mask(files: InputFiles, space: Space) -> MaskImage | None:
    """The mask that was named or found, on the scan's grid."""
    return None if files.mask is None else read_brain_mask(files.mask, space)


def _joined_header(files: InputFiles) -> tuple[Space, GradientTable]:
    first = read_header(files.image)
    for path in files.images[1:]:
        _require_grid(path, first.space, of=files.image)
    if files.grad is not None:
        table = read_mrtrix(files.grad, space=first.space)
    elif files.bval is not None and files.bvec is not None:
        table = read_fsl(files.bval, files.bvec, space=first.space)
    elif files.bval is not None or files.bvec is not None:
        raise DataError(f"{files.bval or files.bvec}: only one of bval and bvec is given. Give both files.")
    else:
        tables = [_own_gradients(path) for path in files.images]
        table = GradientTable(
            np.concatenate([each.bvals for each in tables]), np.concatenate([each.directions for each in tables])
        )
    count = sum(_num_volumes(path) for path in files.images)
    if count != len(table):
        raise DataError(
            f"{files.image}: {count} volumes in {len(files.images)} files but {len(table)} gradients. "
            "Give the gradients of these files, in their order."
        )
    return first.space, table


def _own_gradients(path: Path) -> GradientTable:
    """The gradients beside one part of a scan; converters write none for a lone b=0 volume."""
    space, count = read_header(path).space, _num_volumes(path)
    try:
        found = find_gradients(path)
    except DataError:
        if any(path.with_name(f"{stem(path)}{end}").is_file() for end in (".bval", ".bvec", ".bvals", ".bvecs")):
            raise
        warnings.warn(
            f"{path}: no gradients beside it, so it is taken as b=0. If it is diffusion-weighted the result is wrong: "
            "name the gradients of all volumes with --bval and --bvec.",
            DataWarning,
            stacklevel=2,
        )
        return GradientTable(np.zeros(count), np.zeros((count, 3)))
    table = read_fsl(*found, space=space) if isinstance(found, FslFiles) else read_mrtrix(found, space=space)
    if len(table) != count:
        raise DataError(
            f"{path}: {'1 volume' if count == 1 else f'{count} volumes'} but {len(table)} gradients beside it. "
            "Give those of this file."
        )
    return table


def _num_volumes(path: Path) -> int:
    shape = read_header(path).shape
    return shape[3] if len(shape) == 4 else 1


def _require_grid(path: Path, space: Space, *, of: Path) -> None:
    grid = read_header(path).space
    if not grid.same_grid(space):
        raise DataError(
            f"{path}: its grid {grid.shape} is not that of {of} {space.shape}, or lies elsewhere in the world. "
            "Give the one that belongs to this scan."
        )
