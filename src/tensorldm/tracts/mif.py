"""MRtrix3's own images, with the numbers of a voxel side by side, as tckgen wants them.

A NIfTI image keeps each of the 45 coefficients as a volume of its own, so that every tckgen copies the whole image
into its memory first: half a second of each chunk, and 100 MB of each process. This form is mapped as it is, and
processes share it.
"""

from pathlib import Path
from typing import Final

import numpy as np

from tensorldm.imaging.atomic import writing
from tensorldm.imaging.volume import Space, Volume

ALIGNMENT: Final = 64
"""The numbers begin at a multiple of so many bytes, so that they can be mapped."""


def write_mif(path: Path, volume: Volume) -> None:
    """Write a 4D image in float32, whole or not at all."""
    with writing(path) as stream:
        header = _header(volume.data.shape, volume.space)
        stream.write(header)
        stream.write(np.ascontiguousarray(volume.data.transpose(2, 1, 0, 3), dtype="<f4").data)


def _header(shape: tuple[int, ...], space: Space) -> bytes:
    # Rounded as NIfTI rounds it, so that the image lies exactly on the mask's grid.
    affine = space.affine.astype(np.float32).astype(np.float64)
    sides = np.linalg.norm(affine[:3, :3], axis=0)
    matrix = np.column_stack([affine[:3, :3] / sides, affine[:3, 3]])
    lines = [
        "mrtrix image",
        f"dim: {','.join(str(side) for side in shape)}",
        f"vox: {','.join(repr(float(side)) for side in sides)},nan",
        "layout: +1,+2,+3,+0",
        "datatype: Float32LE",
        *(f"transform: {','.join(repr(float(value)) for value in row)}" for row in matrix),
    ]
    text = "\n".join(lines).encode()
    start = -(-(len(text) + len(b"\nfile: . 00000000\nEND\n")) // ALIGNMENT) * ALIGNMENT
    return (text + f"\nfile: . {start:08d}\nEND\n".encode()).ljust(start, b"\n")
