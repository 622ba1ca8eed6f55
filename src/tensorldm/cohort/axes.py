"""Linear operations along the three axes of a volume, each a small dense matrix.

Blurring, averaging over thicker slices, interpolation and splines are all separable: three matrix products of about
a hundred rows do them for every volume of a series at once, which suits a GPU better than any 3D convolution.
Positions are mm from the centre of the grid. Axes: c channel or DWI volume, x y z space.
"""

from collections.abc import Callable
from functools import lru_cache
from math import log, sqrt

import torch
from jaxtyping import Float
from torch import Tensor

Shape = tuple[int, int, int]
Size = tuple[float, float, float]
Matrices = tuple[Float[Tensor, "x2 x"], Float[Tensor, "y2 y"], Float[Tensor, "z2 z"]]
SIGMA_PER_FWHM = 1 / (2 * sqrt(2 * log(2)))
SPLINE_STD = (151 / 315) ** 0.5
"""Standard deviation, along one axis, of a cubic B-spline with independent unit-normal coefficients: ∫β² = 151/315."""


def centred(size: int, voxel: float) -> Float[Tensor, " n"]:
    """Positions of the voxels' centres along one axis."""
    return (torch.arange(size, dtype=torch.float64) - (size - 1) / 2) * voxel


def along_axes(volumes: Float[Tensor, "c x y z"], matrices: Matrices) -> Float[Tensor, "c x2 y2 z2"]:
    """Apply one matrix to each axis of every volume."""
    for_x, for_y, for_z = (matrix.to(volumes) for matrix in matrices)
    done = torch.matmul(for_y, volumes @ for_z.T)
    flat: Tensor = torch.matmul(for_x, done.flatten(2))
    return flat.reshape(*flat.shape[:2], *done.shape[2:])


@lru_cache(maxsize=64)
def spline_matrices(shape: Shape, voxel_size: Size, *, spacing: float, device: torch.device) -> Matrices:
    """`spline` along each axis, kept on the device: making and moving small matrices takes longer than using them."""
    return _three(lambda axis: spline(shape[axis], voxel_size[axis], spacing=spacing), device)


@lru_cache(maxsize=64)
def gaussian_matrices(shape: Shape, voxel_size: Size, *, fwhm: float, device: torch.device) -> Matrices:
    """`gaussian` along each axis, kept on the device."""
    return _three(lambda axis: gaussian(shape[axis], voxel_size[axis], fwhm=fwhm), device)


@lru_cache(maxsize=64)
def interpolating_matrices(
    old_shape: Shape, old_size: Size, *, shape: Shape, voxel_size: Size, device: torch.device
) -> Matrices:
    """`interpolating` along each axis, kept on the device."""
    return _three(
        lambda axis: interpolating((old_shape[axis], old_size[axis]), (shape[axis], voxel_size[axis])), device
    )


def averaging(
    old: tuple[int, float], new: tuple[int, float], *, width: float, blur_fwhm: float = 0.0
) -> Float[Tensor, "new old"]:
    """What voxels of another grid collect: the mean over a slab of ``width`` mm, after a Gaussian point spread.

    ``old`` and ``new`` are (number, size in mm). The old voxels are taken as homogeneous; beyond them lies air.
    """
    half = width / 2
    at, source = centred(*new)[:, None], centred(*old)[None]
    upper = torch.minimum(at + half, source + old[1] / 2)
    lower = torch.maximum(at - half, source - old[1] / 2)
    overlap = (upper - lower).clamp(min=0) / width
    return overlap @ gaussian(*old, fwhm=blur_fwhm)


def gaussian(size: int, voxel: float, *, fwhm: float) -> Float[Tensor, "n n"]:
    """Blur on one grid; rows sum to 1 away from the edges, where air comes in. The identity for a width of 0."""
    if fwhm <= 0:
        return torch.eye(size, dtype=torch.float64)
    apart = (centred(size, voxel)[:, None] - centred(size, voxel)[None]) / (fwhm * SIGMA_PER_FWHM)
    kernel = torch.exp(-0.5 * apart**2)
    return kernel / kernel[size // 2].sum()


def interpolating(old: tuple[int, float], new: tuple[int, float]) -> Float[Tensor, "new old"]:
    """Linear interpolation from one grid to another; beyond the outermost centres it fades to air."""
    apart = (centred(*new)[:, None] - centred(*old)[None]) / old[1]
    return (1 - apart.abs()).clamp(min=0)


def spline(size: int, voxel: float, *, spacing: float) -> Float[Tensor, "n controls"]:
    """Cubic B-splines whose control points are ``spacing`` mm apart and reach beyond both ends of the grid."""
    extent = (size - 1) * voxel
    controls = int(extent // spacing) + 4
    apart = ((centred(size, voxel)[:, None] - centred(controls, spacing)[None]) / spacing).abs()
    near = 2 / 3 - apart**2 + apart**3 / 2
    far = (2 - apart) ** 3 / 6
    return torch.where(apart < 1, near, torch.where(apart < 2, far, torch.zeros_like(apart)))


def _three(matrix: Callable[[int], Tensor], device: torch.device) -> Matrices:
    x, y, z = (matrix(axis).float().to(device) for axis in range(3))
    return x, y, z
