"""One-dimensional resampling as a matrix of weights: rows are new voxels, columns old ones, rows sum to 1.

A grid whose axes stay is resampled axis by axis, so three small matrices are the whole operator: exact to apply,
easy to normalise over a mask, and as fast as matrix products. Beyond the ends the last voxel is repeated.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

Weights = Float[ndarray, "new old"]
Operator = tuple[Float[ndarray, "u x"], Float[ndarray, "v y"], Float[ndarray, "w z"]]
"""One matrix of weights per axis: from x y z voxels to u v w."""
Kernel = Callable[[Float[ndarray, " new"], int], Weights]
"""From positions in old voxels, and the number of old voxels, to weights."""

FWHM_PER_SIGMA = float(np.sqrt(8 * np.log(2)))


def cubic_weights(positions: Float[ndarray, " new"], num_old: int) -> Weights:
    """Keys' cubic convolution (a = -1/2): interpolates, exact for quadratics, reaches two voxels to each side."""
    first = np.floor(positions).astype(np.int64) - 1
    offsets = first[:, None] + np.arange(4)
    distance = np.abs(positions[:, None] - offsets)
    near = (1.5 * distance - 2.5) * distance**2 + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return _gathered(np.where(distance <= 1, near, np.where(distance < 2, far, 0)), offsets, num_old)


def linear_weights(positions: Float[ndarray, " new"], num_old: int) -> Weights:
    """Linear interpolation: never negative, never beyond the range of its two neighbours."""
    offsets = np.floor(positions).astype(np.int64)[:, None] + np.arange(2)
    return _gathered(np.maximum(1 - np.abs(positions[:, None] - offsets), 0), offsets, num_old)


def blur_weights(num: int, *, old_mm: float, new_mm: float) -> Weights:
    """Gaussian that widens a voxel of the old size to the new one before samples are dropped; identity if none are.

    A voxel's profile is taken as a Gaussian whose FWHM is its size, and variances add: FWHM² = new² - old².
    """
    if new_mm <= old_mm:
        return np.eye(num)
    sigma = np.sqrt(new_mm**2 - old_mm**2) / old_mm / FWHM_PER_SIGMA
    reach = int(np.ceil(4 * sigma))
    offsets = np.arange(num)[:, None] + np.arange(-reach, reach + 1)
    gaussian = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return _gathered(np.broadcast_to(gaussian / gaussian.sum(), offsets.shape), offsets, num)


def apply_weights(data: Float[ndarray, "x y z *n"], weights: Operator) -> Float[ndarray, "u v w *n"]:
    """Resample all three axes; the shortest result first would be quickest, the order changes nothing else."""
    for axis, matrix in enumerate(weights):
        moved = np.tensordot(matrix.astype(data.dtype), data, axes=(1, axis))
        data = np.moveaxis(moved, 0, axis)
    return np.ascontiguousarray(data)


def _gathered(values: Float[ndarray, "new taps"], offsets: Int[ndarray, "new taps"], num_old: int) -> Weights:
    weights = np.zeros((len(values), num_old))
    rows = np.broadcast_to(np.arange(len(values))[:, None], offsets.shape)
    np.add.at(weights, (rows, np.clip(offsets, 0, num_old - 1)), values)
    return weights
