"""HCP's gradient-nonlinearity field: nine numbers per voxel, a 3×3 matrix L by columns.

The scanner plays out (I + L) g where g was asked for. The file refers to the frame of the `.bvec` file; inside the
package, like directions, L refers to image axes and turns with them as R L Rᵀ.
"""

from pathlib import Path

import numpy as np
from einops import rearrange
from jaxtyping import Float
from numpy import ndarray

from tensorldm.errors import DataError
from tensorldm.imaging.frames import between
from tensorldm.imaging.nifti import check_finite, read_volume
from tensorldm.imaging.volume import Space, Volume


def read_grad_dev(path: Path, space: Space) -> Volume:
    """The field in image axes, nine numbers per voxel by columns, on the grid of its series."""
    volume = read_volume(path)
    if volume.data.ndim != 4 or volume.data.shape[3] != 9:
        raise DataError(
            f"{path}: shape {volume.data.shape}, expected nine volumes. Give HCP's grad_dev of this series."
        )
    if not volume.space.same_grid(space):
        raise DataError(
            f"{path}: its grid {volume.space.shape} is not the series' {space.shape}. Give the series' own field."
        )
    check_finite(volume, path)
    return volume.with_data(turned_deviations(volume.data, between("fsl", "image", space=space)))


def turned_deviations(field: Float[ndarray, "*voxels 9"], turn: Float[ndarray, "3 3"]) -> Float[ndarray, "*voxels 9"]:
    """The field in axes that ``turn`` takes vectors to: R L Rᵀ per voxel."""
    matrices = rearrange(field, "... (column row) -> ... row column", row=3)
    turned = turn.astype(field.dtype) @ matrices @ turn.T.astype(field.dtype)
    return np.asarray(rearrange(turned, "... row column -> ... (column row)"))
