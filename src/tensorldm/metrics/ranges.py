"""The constants every figure depends on, the same for all methods and printed with the results.

A PSNR means nothing without its range, an SSIM without its window, an LEM without its floor. They live here, in
physical units, so that no evaluation can choose its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tensorldm.components import COMPONENTS, DIAGONAL

DIAGONAL_RANGE_MM2_PER_S: Final = 3e-3  # [choice: ranges] from 0 to free water at body temperature
OFF_DIAGONAL_RANGE_MM2_PER_S: Final = 2e-3  # [choice: ranges] peak to peak, -1e-3 to 1e-3
DIFFUSIVITY_RANGE_MM2_PER_S: Final = 3e-3  # [choice: ranges] MD and RD
ANISOTROPY_RANGE: Final = 1.0  # [choice: ranges] FA, and each channel of colour FA

SSIM_SIGMA_VOXELS: Final = 1.5  # [choice: ssim-window]
SSIM_RADIUS_VOXELS: Final = 5  # the Gaussian is cut at 3.5 sigma: 11 voxels wide
SSIM_K1: Final = 0.01
SSIM_K2: Final = 0.03

LEM_FLOOR_MM2_PER_S: Final = 1e-6  # [choice: eigenvalue-floor] about 1/500 of white-matter radial diffusivity
LEM_SENSITIVITY_FLOORS_MM2_PER_S: Final = (1e-7, 1e-5)  # [choice: eigenvalue-floor] how much the floor decides
V1_MIN_FA: Final = 0.25  # [choice: v1-angle] below it the reference itself has no clear direction
NEGATIVE_EIGENVALUE_MM2_PER_S: Final = -1e-9  # [choice: spd-rate] beyond float32 rounding of a 3e-3 mm²/s tensor

COMPONENT_RANGES: Final = tuple(
    DIAGONAL_RANGE_MM2_PER_S if d in DIAGONAL else OFF_DIAGONAL_RANGE_MM2_PER_S for d in range(len(COMPONENTS))
)
"""Range of component d, mm²/s."""

MAP_RANGES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "MD": DIFFUSIVITY_RANGE_MM2_PER_S,
        "RD": DIFFUSIVITY_RANGE_MM2_PER_S,
        "FA": ANISOTROPY_RANGE,
        "colour FA": ANISOTROPY_RANGE,
    }
)


def describe() -> tuple[str, ...]:
    """Every constant in words, to be printed with each table."""
    floors = " and ".join(f"{floor:g}" for floor in LEM_SENSITIVITY_FLOORS_MM2_PER_S)
    return (
        f"PSNR and SSIM range: diagonal {DIAGONAL_RANGE_MM2_PER_S:g}, off-diagonal {OFF_DIAGONAL_RANGE_MM2_PER_S:g} "
        f"(peak to peak), MD and RD {DIFFUSIVITY_RANGE_MM2_PER_S:g} mm²/s, FA and colour FA {ANISOTROPY_RANGE:g}",
        f"SSIM: 3D Gaussian window, sigma {SSIM_SIGMA_VOXELS:g} voxels, {2 * SSIM_RADIUS_VOXELS + 1} wide, "
        f"K1 {SSIM_K1:g}, K2 {SSIM_K2:g}, volumes zero outside the mask, mean over the mask",
        "NMSE: sum of squared errors over sum of squared reference, in the mask",
        "Colour FA: three unsigned channels, each measured, then averaged",
        f"LEM: log-Euclidean distance, the norm of the difference of the tensors' logarithms; eigenvalues clamped at "
        f"{LEM_FLOOR_MM2_PER_S:g} mm²/s (sensitivity at {floors}), mean over the mask",
        "SPD violations: % of mask voxels whose raw tensor has a negative eigenvalue; "
        "in FA, MD and RD a negative eigenvalue counts as 0",
        f"v1 angle: degrees, antipodal, where the reference FA > {V1_MIN_FA:g}",
    )
