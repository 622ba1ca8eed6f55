"""What a NIfTI file claims to hold, checked before any memory is asked for.

Which affine: the sform when its code is above 0, else the qform, else NIfTI's fallback of voxel sizes alone, with
a warning because that one does not tell left from right.
"""

import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from nibabel import Nifti1Header, Nifti2Header
from nibabel.filebasedimages import ImageFileError
from nibabel.openers import ImageOpener
from nibabel.spatialimages import HeaderDataError

from tensorldm.errors import DataError, DataWarning
from tensorldm.imaging.volume import Space

SUFFIXES = (".nii.gz", ".nii")
SMALLEST_VOXEL_MM, LARGEST_VOXEL_MM = 0.01, 20.0
"""Of the longest side. No scanner resolves the first; a header in metres says 0.002 for 2 mm."""
LARGEST_SHEAR_DEGREES = 0.5
LARGEST_READ_BYTES = 32 * 2**30
"""As float32. The largest usual series, HCP's, takes 4 GiB."""
LARGEST_FIELD_M3 = 1.0
"""A whole body takes 0.7. On the 2 mm grid this is half a gigabyte a volume; a larger claim would ask for terabytes."""
LARGEST_EXTENSION_BYTES = 64 * 2**20
"""Between header and voxels stand notes of other programs, which nibabel reads whole."""
DEFLATE_LIMIT = 1032
"""No gzip file unpacks to more than this many times its size."""
UNKNOWN_CODE, ALIGNED_CODE = 0, 2

_BROKEN = (OSError, EOFError, ValueError, KeyError, OverflowError, zlib.error, ImageFileError, HeaderDataError)
"""KeyError: nibabel looks up the code of the data type in a table."""


class Header(NamedTuple):
    """A file's grid, and its array's shape with trailing axes of one dropped."""

    space: Space
    shape: tuple[int, ...]


def stem(path: Path) -> str:
    """The file's name without ``.nii`` or ``.nii.gz``."""
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    raise DataError(f"{path}: not the name of a NIfTI file. Give a file that ends in .nii or .nii.gz.")


def read_header(path: Path) -> Header:
    """The grid and shape of an image, its header checked; voxels stay on the disk."""
    stem(path)
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Check the path.")
    with explained(path, "not a readable NIfTI file"):
        header = _raw_header(path)
        shape = _squeezed(tuple(int(n) for n in header.get_data_shape()))
        dtype = np.dtype(header.get_data_dtype())
        offset = int(header.get_data_offset())
    _check_array(path, shape, dtype)
    _check_size(path, shape, dtype=dtype, offset=offset)
    return Header(_space(path, header, shape), shape)


@contextmanager
def explained(path: Path, problem: str) -> Iterator[None]:
    """Tell what goes wrong while a file is parsed as one sentence about it."""
    try:
        yield
    except _BROKEN as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path}: {problem} ({reason}). Copy or export the file again.") from error


def _raw_header(path: Path) -> Any:
    """The header as it stands: nibabel would quietly mend voxel sizes of zero or below."""
    with ImageOpener(path) as stream:
        start = stream.read(Nifti2Header.template_dtype.itemsize)
        if not start:
            raise ValueError("it is empty")
        stream.seek(0)
        for kind in (Nifti1Header, Nifti2Header):
            if kind.may_contain_header(start):
                return kind.from_fileobj(stream, check=False)
    raise ValueError(f"it starts with {start[:4]!r}, not with a NIfTI header")


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    while len(shape) > 3 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _check_array(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) < 3 or min(shape) < 1:
        raise DataError(f"{path}: an array of shape {shape}, which is no volume. Give a 3D image or a 4D series.")
    if dtype.kind not in "iuf":
        raise DataError(f"{path}: voxels of type {dtype}, expected real numbers. Export the magnitude images.")


def _check_size(path: Path, shape: tuple[int, ...], *, dtype: np.dtype[Any], offset: int) -> None:
    """Refuse a header that claims more voxels than the file can hold, or than anyone scans."""
    count = int(np.prod([int(n) for n in shape], dtype=object))
    held = path.stat().st_size * (DEFLATE_LIMIT if path.name.endswith(".gz") else 1)
    if offset > LARGEST_EXTENSION_BYTES:
        raise DataError(
            f"{path}: the header says that {offset / 2**20:.0f} MiB of notes stand before the voxels, over the limit "
            f"of {LARGEST_EXTENSION_BYTES // 2**20}. Export the file again without header extensions."
        )
    if offset + count * dtype.itemsize > held:
        raise DataError(
            f"{path}: the header claims {shape} voxels of {dtype}, more than the file can hold. "
            "The file is cut short or its header is damaged: copy or export it again."
        )
    if count * 4 > LARGEST_READ_BYTES:
        raise DataError(
            f"{path}: {shape} voxels would take {count * 4 / 2**30:.0f} GiB, over the limit of "
            f"{LARGEST_READ_BYTES // 2**30}. Split the series, or resample it."
        )


def _space(path: Path, header: Any, shape: tuple[int, ...]) -> Space:
    qform_code, sform_code = int(header["qform_code"]), int(header["sform_code"])
    if qform_code <= UNKNOWN_CODE and sform_code <= UNKNOWN_CODE:
        warnings.warn(
            f"{path}: neither sform nor qform is set, so left and right are not known; taken as stored right to left. "
            "Check the orientation of the results.",
            DataWarning,
            stacklevel=2,
        )
        # From here on this is the affine, so files made from it must say so.
        sform_code = ALIGNED_CODE
        sform = header.get_base_affine()
    else:
        sform = header.get_sform() if sform_code > UNKNOWN_CODE else None
    with explained(path, "its qform is damaged"):
        qform = header.get_qform() if qform_code > UNKNOWN_CODE else None
    affine = np.asarray(sform if sform is not None else qform, dtype=np.float64)
    _check_affine(path, affine)
    _check_field(path, shape, affine=affine)
    space = Space((shape[0], shape[1], shape[2]), affine, qform, max(qform_code, 0), sform, max(sform_code, 0))
    if space.shear_degrees > LARGEST_SHEAR_DEGREES:
        warnings.warn(
            f"{path}: the voxel axes are {space.shear_degrees:.1f}° from perpendicular; "
            "gradient directions and tensors are turned by the nearest rotation.",
            DataWarning,
            stacklevel=2,
        )
    return space


def _check_affine(path: Path, affine: np.ndarray) -> None:
    if not np.isfinite(affine).all():
        raise DataError(f"{path}: the affine holds NaN or infinity. Export the file again.")
    with np.errstate(over="ignore"):  # beyond any size is told below
        size = np.linalg.norm(affine[:3, :3], axis=0)
    known = size.min() > 0 and SMALLEST_VOXEL_MM <= size.max() <= LARGEST_VOXEL_MM
    if not known or abs(np.linalg.det(affine[:3, :3] / size)) < 0.1:
        raise DataError(
            f"{path}: voxels of {' × '.join(f'{side:.4g}' for side in size)} mm that span no usable grid "
            f"(sides of {SMALLEST_VOXEL_MM:g} to {LARGEST_VOXEL_MM:.0f} mm, axes that differ): some programs count in "
            "metres or micrometres. Mend the header's affine."
        )


def _check_field(path: Path, shape: tuple[int, ...], *, affine: np.ndarray) -> None:
    """Refuse a field of view that no scanner has: resampling it would ask for more memory than there is."""
    sides_m = np.linalg.norm(affine[:3, :3], axis=0) * shape[:3] / 1000
    if np.prod(sides_m) > LARGEST_FIELD_M3:
        raise DataError(
            f"{path}: a field of view of {' × '.join(f'{side:.3g}' for side in sides_m)} m, over the limit of "
            f"{LARGEST_FIELD_M3:g} m³. Mend the voxel size in the header."
        )
