"""NIfTI files: read as float32 with slope and intercept applied, and written whole or not at all."""

import gzip
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import nibabel
import numpy as np
from jaxtyping import Float, Shaped
from nibabel.imageglobals import LoggingOutputSuppressor
from numpy import ndarray
from numpy.typing import DTypeLike

from tensorldm import bounded
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import writing
from tensorldm.imaging.header import Header, explained, read_header, stem
from tensorldm.imaging.volume import Space, Volume
from tensorldm.shapes import MaskImage

__all__ = [
    "Header",
    "Intent",
    "check_finite",
    "check_not_empty",
    "read_header",
    "read_mask",
    "read_volume",
    "stem",
    "write_mask",
    "write_volume",
]

COMPRESSION_LEVEL = 1
"""The noise of float32 images barely compresses further, and higher levels take several times as long."""


class Intent(NamedTuple):
    """What a file's values mean, by NIfTI's code and its parameters."""

    code: int = 0
    parameters: tuple[float, ...] = ()


NO_INTENT = Intent()


def read_volume(path: Path, *, volumes: Sequence[int] | None = None) -> Volume:
    """An image as float32; of a series only ``volumes``, in their order, if they are given."""
    space, shape = read_header(path)
    if volumes is not None and len(shape) != 4:
        raise DataError(f"{path}: a {len(shape)}D image has no volumes to choose from. Give a 4D series.")
    _check_memory(path, shape, num_volumes=None if volumes is None else len(volumes))
    with explained(path, "the voxels cannot be read, the file may be cut short"), LoggingOutputSuppressor():
        # One open file for all volumes: opened anew, a gzip is unpacked from its start each time.
        proxy = nibabel.load(path, keep_file_open=volumes is not None).dataobj
        # A float64 file may hold what float32 cannot: it becomes infinite, which check_finite tells.
        with np.errstate(over="ignore", invalid="ignore"):
            if volumes is None:
                data = np.asarray(proxy, dtype=np.float32).reshape(shape)
            else:
                data = _chosen(proxy, shape, volumes)
    return Volume(data, space)


def _check_memory(path: Path, shape: tuple[int, ...], *, num_volumes: int | None) -> None:
    """Refuse what this machine cannot hold, before it is asked to: it would be killed without a word."""
    count = math.prod(shape) if num_volumes is None else math.prod(shape[:3]) * num_volumes
    needed, there = count * np.dtype(np.float32).itemsize, bounded.machine_bytes()
    if needed > there:
        raise DataError(
            f"{path}: reading {shape} voxels takes at least {needed / 2**30:.1f} GiB and this machine has "
            f"{there / 2**30:.1f}. Give fewer volumes, a smaller image, or a larger machine."
        )


def _chosen(proxy: Any, shape: tuple[int, ...], volumes: Sequence[int]) -> Float[ndarray, "x y z n"]:
    """Volumes read in the file's order and put in the caller's."""
    rest = (0,) * (proxy.ndim - 4)
    data = np.empty((*shape[:3], len(volumes)), dtype=np.float32)
    for place, index in sorted(enumerate(volumes), key=lambda pair: pair[1]):
        data[..., place] = proxy[(..., index, *rest)]
    return data


def read_mask(path: Path) -> tuple[MaskImage, Space]:
    """A 3D image as a mask: true where the value is above 0.5."""
    volume = read_volume(path)
    if volume.data.ndim != 3:
        raise DataError(f"{path}: a mask is a 3D image, found shape {volume.data.shape}. Give one volume.")
    broken = int((~np.isfinite(volume.data)).sum())
    if broken:
        raise DataError(f"{path}: {broken} voxels of the mask are NaN or infinite. Give a mask of zeros and ones.")
    return volume.data > 0.5, volume.space


def check_finite(volume: Volume, path: Path, *, volumes: Sequence[int] | None = None) -> None:
    """Refuse NaN and infinity, naming the volume by its number in the file: ``volumes`` where only some were read."""
    for index, image in _images(volume, volumes):
        if not np.isfinite(image).all():
            raise DataError(
                f"{path}: {int((~np.isfinite(image)).sum())} voxels of volume {index} are NaN or infinite. "
                "Leave that volume out, or export the series again."
            )


def check_not_empty(volume: Volume, path: Path, *, volumes: Sequence[int] | None = None) -> None:
    """Refuse a volume that is zero everywhere, named in the same way."""
    for index, image in _images(volume, volumes):
        if not image.any():
            raise DataError(f"{path}: volume {index} is zero everywhere. Leave it out, or export the series again.")


def _images(volume: Volume, volumes: Sequence[int] | None) -> Iterator[tuple[int, Float[ndarray, "x y z"]]]:
    series = volume.data.reshape(*volume.space.shape, -1)
    for index, number in enumerate(range(series.shape[-1]) if volumes is None else volumes):
        yield number, series[..., index]


def write_volume(path: Path, volume: Volume, *, dtype: DTypeLike = np.float32, intent: Intent = NO_INTENT) -> None:
    """Write an image, whole or not at all; the same values give the same bytes."""
    _write(path, volume.data.astype(dtype, copy=False), space=volume.space, intent=intent)


def write_mask(path: Path, mask: MaskImage, *, space: Space) -> None:
    """Write a mask as bytes of 0 and 1."""
    _write(path, mask.astype(np.uint8), space=space, intent=NO_INTENT)


def _write(path: Path, data: Shaped[ndarray, "x y z *n"], *, space: Space, intent: Intent) -> None:
    stem(path)
    image = nibabel.Nifti1Image(data, space.affine)
    header = image.header
    header.set_sform(space.affine if space.sform is None else space.sform, space.sform_code)
    # A quaternion holds no shear: it keeps the nearest rotation, and the sform says the whole truth.
    header.set_qform(space.affine if space.qform is None else space.qform, space.qform_code, strip_shears=True)
    header.set_xyzt_units("mm", "sec")
    header.set_intent(*intent)
    with writing(path) as stream:
        if path.name.endswith(".gz"):
            # No name and no time in the gzip header: the same image gives the same bytes.
            with gzip.GzipFile("", "wb", COMPRESSION_LEVEL, stream, mtime=0) as packed:
                image.to_stream(packed)
        else:
            image.to_stream(stream)
