"""Where fluid is, in a template that tells anisotropy but not diffusivity.

Noise gives still water as much anisotropy as grey matter, so anisotropy alone cannot say. Assumed instead: the average
head's ventricles, fitted to the brain's box, and a rim of fluid on the brain's surface; neither where white matter is.
A stand-in for what the template lacks, not this head's own ventricles.
"""

from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import ndimage
from torch import Tensor

from tensorldm.cohort.procedural.shape import ventricles
from tensorldm.shapes import MaskImage

AVERAGE_WIDTH_MM: Final = 137.0
AVERAGE_LENGTH_MM: Final = 174.0
AVERAGE_MIDDLE_MM: Final = -17.0
"""Middle of the average brain from front to back."""
AVERAGE_TOP_MM: Final = 78.0
VENTRICLE_SCALE: Final = 1.1
RIM_MM: Final = 3.0
RIM_SHARE: Final = 0.5
WHITE_FA: Final = (0.22, 0.32)
"""Mean FA of neighbours at which voxels begin to be, and surely are, white matter."""


def assumed_fluid(fa: Float[Tensor, " v"], mask: MaskImage, *, voxel_mm: float) -> Float[Tensor, " v"]:
    """The fluid's share of every voxel of the mask."""
    image = np.zeros(mask.shape, dtype=np.float32)
    image[mask] = fa.numpy()
    around = ndimage.gaussian_filter(image, 1.0) / np.maximum(
        ndimage.gaussian_filter(mask.astype(np.float32), 1.0), 1e-3
    )
    low, high = WHITE_FA
    not_white = ((high - torch.from_numpy(around[mask])) / (high - low)).clamp(0, 1)
    hollow = torch.sigmoid(ventricles(_average_points(mask, voxel_mm), VENTRICLE_SCALE) / (0.25 * voxel_mm))
    depth = torch.from_numpy(ndimage.distance_transform_edt(mask)[mask]).float() * voxel_mm
    rim = RIM_SHARE * (1 - depth / RIM_MM).clamp(0, 1)
    return (torch.maximum(hollow, rim) * not_white).clamp(0, 0.95)


def _average_points(mask: MaskImage, voxel_mm: float) -> Float[Tensor, "v 3"]:
    """The mask's voxels in the average head, by the brain's width, length and top; scans are often cut below."""
    inside = np.argwhere(mask).astype(np.float64) * voxel_mm
    low, high = inside.min(axis=0), inside.max(axis=0)
    width, length = (high - low)[:2] / np.array([AVERAGE_WIDTH_MM, AVERAGE_LENGTH_MM])
    middle = (low + high) / 2
    points: ndarray = np.column_stack(
        [
            (inside[:, 0] - middle[0]) / width,
            (inside[:, 1] - middle[1]) / length + AVERAGE_MIDDLE_MM,
            (inside[:, 2] - high[2]) / ((width + length) / 2) + AVERAGE_TOP_MM,
        ]
    )
    return torch.from_numpy(points).float()
