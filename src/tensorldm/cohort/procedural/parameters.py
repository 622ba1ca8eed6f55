"""The shape-parameter space of procedural heads, and the part of it that each split may use.

The three parameters that decide what a head looks like at first sight (width to length, size of the folds, size of
the ventricles) are cut into intervals that do not meet, so that a validation or test head is outside the training
heads' range in all three. The remaining parameters are drawn from the same ranges for every split.
"""

from dataclasses import dataclass
from typing import Final

import torch

from tensorldm import rng
from tensorldm.errors import DataError

Interval = tuple[float, float]


@dataclass(frozen=True)
class HeadShape:
    """One head. Lengths in mm, diffusivities in mm²/s."""

    width_to_length: float
    fold_wavelength: float
    """Two gyri to a wavelength."""
    ventricle_scale: float
    size: float
    """Scale of the average head, before the proportions are changed at constant area of the axial section."""
    height: float
    """Further scale from foot to head."""
    cortex_thickness: float
    sulcus_half_width: float
    sulcus_depth: float
    callosum_scale: float
    bundle_scale: float
    bundle_shift: float
    """Standard deviation of a bundle's own displacement from its average course."""
    deformation: float
    """Standard deviation of the smooth displacement that makes heads individual and asymmetric."""
    axial_diffusivity: float
    radial_diffusivity: float
    grey_diffusivity: float
    csf_diffusivity: float
    grey_s0: float
    csf_s0: float
    texture: float
    """Relative standard deviation of diffusivities and densities within a tissue."""


@dataclass(frozen=True)
class Region:
    """The part of the shape space that belongs to one split."""

    width_to_length: Interval
    fold_wavelength: Interval
    ventricle_scale: Interval


REGIONS: Final = {
    "train": Region(width_to_length=(0.73, 0.80), fold_wavelength=(26.0, 32.0), ventricle_scale=(0.60, 1.20)),
    "validation": Region(width_to_length=(0.805, 0.825), fold_wavelength=(24.0, 25.5), ventricle_scale=(1.25, 1.35)),
    "test": Region(width_to_length=(0.83, 0.87), fold_wavelength=(21.5, 23.5), ventricle_scale=(1.40, 1.70)),
}

SHARED: Final[dict[str, Interval]] = {
    "size": (0.93, 1.03),
    "height": (0.95, 1.05),
    "cortex_thickness": (2.6, 3.4),
    "sulcus_half_width": (0.4, 0.9),
    "sulcus_depth": (16.0, 22.0),
    "callosum_scale": (0.85, 1.2),
    "bundle_scale": (0.85, 1.15),
    "bundle_shift": (1.0, 2.0),
    "deformation": (1.0, 2.0),
    "axial_diffusivity": (1.55e-3, 1.85e-3),
    "radial_diffusivity": (0.22e-3, 0.38e-3),
    "grey_diffusivity": (0.76e-3, 0.90e-3),
    "csf_diffusivity": (2.8e-3, 3.1e-3),
    "grey_s0": (1.2, 1.4),
    "csf_s0": (2.5, 3.5),
    "texture": (0.06, 0.12),
}


def draw_shape(split: str, index: int) -> HeadShape:
    """The shape of head ``index`` of a split, the same each time."""
    if split not in REGIONS:
        raise DataError(f"There is no split '{split}' of procedural heads. Give one of {', '.join(REGIONS)}.")
    generator = rng.generator(0, "procedural-shape", split, index)
    intervals = {**vars(REGIONS[split]), **SHARED}
    positions = torch.rand(len(intervals), generator=generator, dtype=torch.float64).tolist()
    values = {
        name: low + position * (high - low)
        for (name, (low, high)), position in zip(intervals.items(), positions, strict=True)
    }
    return HeadShape(**values)
