"""Inputs outside what a method knows are noticed before computing; each warning says what it means for the result.

Functions give warnings as sentences, or raise ``DataError`` for what is refused unless the user forces it.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.data.scan import LARGE_ANGLE_DEGREES
from tensorldm.data.selection import PAPER_SHELL, Selection
from tensorldm.errors import ConfigError, DataError
from tensorldm.imaging.flips import FlipCheck
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.grid import Grid
from tensorldm.imaging.resample import Resampling
from tensorldm.imaging.volume import Space
from tensorldm.reconstruct.engine import Traits
from tensorldm.reconstruct.settings import Settings
from tensorldm.shapes import MaskImage

LOWEST_BVAL, HIGHEST_BVAL = 700.0, 1600.0
"""s/mm²: below, noise and perfusion decide the ADC; above, kurtosis and the noise floor do."""
SAME_BVAL_SHARE = 0.1
SMALLEST_VOXEL_MM, LARGEST_VOXEL_MM = 1.2, 3.05
"""Sides from which a voxel is far from 2 mm; scanners write 2.9999 or 3.0001 for 3."""
SMALLEST_EXTENT_MM = 90.0
"""A brain is at least this long in every direction; less is a slab."""
LARGEST_ZERO_SHARE = 0.01
"""Of the mask, in one volume. Fluid decays to zero in a few voxels of each (0.2 % at b=1500); a lost slice is more."""
LARGEST_BRAIN_LITRES, SMALLEST_BRAIN_LITRES = 2.2, 0.1
"""Inside the skull adults have 1.1 to 1.9 litres; a slab of 50 mm through the middle has more than half a litre."""
PLAUSIBLE_MD_MM2_PER_S = (0.4e-3, 1.8e-3)
"""Median over a brain mask, CSF included: 0.7e-3 to 1.1e-3 in living adults."""

FORCE = "Give --force to go on all the same."


def check_settings(traits: Traits, settings: Settings) -> None:
    """Refuse what the method cannot do."""
    if not traits.samples and settings.samples is not None and settings.samples > 1:
        raise ConfigError(
            f"--samples {settings.samples}: '{traits.name}' always gives the same tensor. Leave --samples out, or give "
            "a trained model with --model."
        )
    if (traits.fixed_input or traits.four_volumes) and settings.directions == "all":
        raise ConfigError(
            f"--directions all: '{traits.name}' takes one b=0 and the three directions nearest to the axes. "
            "Leave --directions out, or give a method that takes any number."
        )


def check_bvalue(bval: float, *, traits: Traits, force: bool) -> list[str]:
    """Near 1000 all is well; within the known range a word; outside it the scan is refused unless forced."""
    outside = not LOWEST_BVAL <= bval <= HIGHEST_BVAL
    if outside and not force:
        raise DataError(
            f"The shell nearest to b=1000 s/mm² is at b={bval:.0f}, outside {LOWEST_BVAL:.0f} to {HIGHEST_BVAL:.0f}: "
            f"diffusivities would be off by more than the map can be trusted for. Give another series. {FORCE}"
        )
    if abs(bval - PAPER_SHELL) <= SAME_BVAL_SHARE * PAPER_SHELL:
        return []
    words = []
    if outside:
        words.append(
            f"b={bval:.0f} s/mm² is outside {LOWEST_BVAL:.0f} to {HIGHEST_BVAL:.0f}, where models are trained and "
            "tensors describe the signal, and was forced: MD is too low at a higher b and too high at a lower one, "
            "FA is off too, and neither compares with other scans."
        )
    if traits.fixed_input and not traits.voxelwise:
        words.append(
            f"b={bval:.0f} s/mm²: the signals are taken to b=1000 as if their decay were mono-exponential; kurtosis "
            "and the noise floor are not corrected, so MD is biased, downwards for a higher b."
        )
    elif not outside:
        words.append(
            f"b={bval:.0f} s/mm² is not near 1000: it is accounted for, but decay is not mono-exponential, so MD does "
            "not compare with that of a scan at b=1000 (lower for a higher b)."
        )
    return words


def check_angles(selection: Selection, *, traits: Traits) -> list[str]:
    """Directions far from the axes, which the paper's input stands for."""
    worst = max(selection.angles_degrees)
    if worst <= LARGE_ANGLE_DEGREES:
        return []
    axis = selection.angles_degrees.index(worst)
    if traits.fixed_input:
        meaning = "it is treated as if it were that axis, so directions and FA are wrong by a good part of this angle"
    elif traits.voxelwise:
        meaning = "the true direction is used, and what the three leave open is not what three axes would"
    else:
        meaning = "the true direction is used, but models meet fewer scans like this, so trust FA and directions less"
    return [
        f"The direction nearest to {'xyz'[axis]} (volume {selection.axes[axis]}) is {worst:.0f}° away from it: "
        f"{meaning}."
    ]


def check_grid(space: Space, *, traits: Traits) -> list[str]:
    """Voxels far from 2 mm, and slabs."""
    words = []
    sides = " × ".join(f"{side:.3g}" for side in space.voxel_size)
    if max(space.voxel_size) > LARGEST_VOXEL_MM:
        words.append(
            f"Voxels of {sides} mm are coarse: several fibres share a voxel, so FA is low where they cross and thin "
            "bundles are lost; finer output voxels show no more than was measured."
        )
    if min(space.voxel_size) < SMALLEST_VOXEL_MM:
        words.append(f"Voxels of {sides} mm are fine: noise is high in each, and FA is biased upwards by it.")
    extent = [side * count for side, count in zip(space.voxel_size, space.shape, strict=True)]
    if min(extent) < SMALLEST_EXTENT_MM and not traits.voxelwise:
        words.append(
            f"The field of view is {min(extent):.0f} mm along an axis, a slab: a model that knows whole brains is less "
            "sure near its cut faces."
        )
    return words


def check_flips_word(check: FlipCheck, *, force: bool) -> list[str]:
    """Directions that contradict the fibres are refused; what cannot be checked is said."""
    if check.status == "verified":
        return []
    if check.status == "untestable":
        return [
            f"{check.message[:1].upper()}{check.message[1:]}: FA and MD do not depend on them, but directions and "
            "tracts do; check them on a scan with more directions of this protocol."
        ]
    if not force:
        raise DataError(f"{check.message}. {FORCE}")
    return [f"{check.message}; the table was used as it is, so directions are probably mirrored."]


def check_mask(mask: MaskImage, space: Space, *, traits: Traits) -> list[str]:
    """Masks that hold more than a brain, or so little of one that a model cannot know where it is."""
    litres = int(mask.sum()) * float(np.prod(space.voxel_size)) / 1e6
    if litres > LARGEST_BRAIN_LITRES:
        return [
            f"The mask holds {litres:.1f} litres, more than any brain: tensors in air and skull mean nothing, and the "
            "medians and shares of this summary count them. Give a mask of the brain, or none."
        ]
    if litres < SMALLEST_BRAIN_LITRES and not traits.voxelwise:
        return [
            f"The mask holds {1000 * litres:.2g} ml, a small part of a human brain: a model scales signals by what is "
            "in the mask and knows whole brains, so FA and MD may be off. Give a mask of the whole brain, or none."
        ]
    return []


def check_signal(
    signal: Float[ndarray, "v c"], gradients: GradientTable, *, volumes: Sequence[int], force: bool
) -> list[str]:
    """Intensities inside the mask that no scan of a brain has; ``volumes`` are the used ones' numbers in the series."""
    words = []
    missing = (signal <= 0).mean(axis=0)
    if missing.max() > LARGEST_ZERO_SHARE:
        words.append(
            f"{missing.max():.1%} of the mask has no signal in volume {volumes[int(missing.argmax())]}: what this "
            "volume measures is invented there. Check that volume, and that the mask covers the brain only."
        )
    adc = _median_adc(signal, gradients)
    typical, worst = float(np.median(adc)), int(np.where(np.isnan(adc), -np.inf, adc).argmin())
    if not adc[worst] > 0:
        volume = [number for number, b0 in zip(volumes, gradients.is_b0, strict=True) if not b0][worst]
        found = "has no signal" if np.isnan(adc[worst]) else "is as bright as the b=0"
        text = (
            f"volume {volume} {found} inside the mask (median ADC {adc[worst]:.2g} mm²/s): b-values or volumes are "
            "mixed up, or the image is no magnitude image. Check the series"
        )
        if not force:
            raise DataError(f"{text}. {FORCE}")
        words.append(f"{text}; whatever the maps show is no diffusion.")
    elif not PLAUSIBLE_MD_MM2_PER_S[0] <= typical <= PLAUSIBLE_MD_MM2_PER_S[1]:
        words.append(
            f"The median ADC inside the mask is {typical:.2g} mm²/s, a living brain has 0.7e-3 to 1.1e-3: check "
            "b-values, mask and intensity scaling, since MD follows them."
        )
    return words


def _median_adc(signal: Float[ndarray, "v c"], gradients: GradientTable) -> Float[ndarray, " n"]:
    """Of each weighted volume, over voxels with signal; NaN where there are none. mm²/s."""
    b0, weighted = signal[:, gradients.is_b0].mean(axis=1, keepdims=True), signal[:, ~gradients.is_b0]
    with np.errstate(divide="ignore", invalid="ignore"):
        adc = np.log(b0 / weighted) / gradients.bvals[~gradients.is_b0]
    columns = [column[np.isfinite(column)] for column in adc.T]
    return np.array([np.median(column) if column.size else np.nan for column in columns])


def refuse_raw_resampling(grid: Grid) -> None:
    """Raw tensors may have negative eigenvalues, and these have no logarithm to interpolate."""
    if any(isinstance(step, Resampling) for step in grid.steps):
        raise ConfigError(
            "--spd raw: tensors that are not positive definite cannot be brought back from 2 mm to this scan's voxels. "
            "Give --grid 2mm with it, or leave it out."
        )
