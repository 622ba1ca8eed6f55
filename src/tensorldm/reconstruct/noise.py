"""The noise level of a scan from the scan itself: the standard deviation σ of one real channel, one for all voxels.

Three estimators, the first that the scan allows [choice: noise-level]:

1. *repeated b=0*: two or more b=0 volumes differ by noise alone. The spread of their differences over √2, in the darker
   half of the mask: pulsation, motion and drift grow with the signal and with fluid, noise does not.
2. *background*: the magnitude of pure noise has Rayleigh's distribution, whose quartiles give σ and check themselves:
   air that is cut to zero, smoothed, or combined from several receivers has other quartiles and is not used.
3. *high-pass*: the second difference along all three axes at once, of unit norm. It removes whatever is linear along
   any one axis, flat borders included, and keeps white noise. Volumes share most of the anatomy that is left and none
   of the noise: so of all sums of volumes with weights of unit norm the one that varies least is taken. Anatomy that
   still remains makes σ too large (by 7 % in virtual heads at an SNR of 30); images that were resampled or smoothed
   have lost high frequencies, and σ comes out too small.

Spread is always 1.4826 times the median absolute deviation, which does not follow a few outliers.
"""

from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.errors import DataError
from tensorldm.shapes import BVals

NoiseMethod = Literal["repeated b=0", "background", "high-pass"]
Series = Float[Tensor, "x y z n"]
Mask = Bool[Tensor, "x y z"]

MAD_TO_SD: Final = 1.4826
"""SD over MAD of a Gaussian."""
RAYLEIGH_QUARTILES: Final = (0.7585, 1.1774, 1.6651)
"""Quartiles of the magnitude of complex noise with σ = 1: √(−2 ln 0.75), √(−2 ln 0.5), √(−2 ln 0.25)."""
QUARTILE_TOLERANCE: Final = 0.08
"""How far quartiles may be from Rayleigh's, as a share; those of two receivers are 25 % closer together."""
TAIL_SIGMAS: Final = 3.5
"""Brighter background is tissue or ghost: one in five hundred values of pure noise is."""
MARGIN_VOXELS: Final = 4
"""Background starts this far from the mask: scalp and the smear of bright voxels stay out."""
LEAST_BACKGROUND_VOXELS: Final = 1000
LEAST_VOXELS: Final = 100
_ITERATIONS: Final = 20


class Noise(NamedTuple):
    """σ in the signal's units, and where it comes from."""

    sigma: float
    method: NoiseMethod


def noise_sigma(signal: Series, bvals: BVals, *, mask: Mask) -> Noise:
    """The noise level by the first estimator that the scan allows; ``mask`` is the brain.

    A scan whose noise cannot be measured (noise-free, or a sliver of a mask) is a ``DataError``.
    """
    signal = signal if signal.dtype == torch.float64 else signal.float()
    b0 = signal[..., (bvals <= B0_MAX_S_PER_MM2).to(signal.device)]
    if b0.shape[-1] >= 2:
        return _checked(from_repeats(b0[mask]), "repeated b=0")
    background = from_background(signal, mask)
    if background is not None:
        return _checked(background, "background")
    return _checked(from_high_pass(signal, mask), "high-pass")


def from_repeats(b0: Float[Tensor, "v n"]) -> float:
    """From n ≥ 2 volumes of the same signal; neighbours in time are compared, so that slow drift stays out."""
    level = b0.mean(dim=-1)  # independent of the differences, so choosing by it favours no noise
    dark = b0[level <= level.median()]
    return float(torch.stack([_robust_sd(one) for one in dark.diff(dim=-1).unbind(-1)]).median()) / 2**0.5


def from_background(signal: Series, mask: Mask) -> float | None:
    """From the air around the head; None where there is none, or what is there is not the magnitude of plain noise."""
    air = ~_grown(mask, MARGIN_VOXELS) & (signal > 0).all(dim=-1)
    if int(air.sum()) < LEAST_BACKGROUND_VOXELS:
        return None
    found = [sigma for volume in signal[air].unbind(-1) if (sigma := _rayleigh_sigma(volume)) is not None]
    return float(torch.tensor(found).median()) if 2 * len(found) > signal.shape[-1] else None


def from_high_pass(signal: Series, mask: Mask) -> float:
    """From the finest structure inside the mask, in the sum of volumes that has least of it."""
    inside = _high_pass_is_inside(mask) if min(mask.shape) >= 3 else mask[:0]
    if int(inside.sum()) < LEAST_VOXELS:
        raise DataError(
            f"The noise cannot be measured: of the mask's {int(mask.sum())} voxels too few have all neighbours inside. "
            "Give a mask of the whole brain."
        )
    fine = torch.stack([_high_pass(volume)[inside] for volume in signal.unbind(-1)], dim=-1).double()
    quietest = torch.linalg.eigh(_robust_covariance(fine)).eigenvectors[:, 0]
    return float(_robust_sd(fine @ quietest))


def _checked(sigma: float, method: NoiseMethod) -> Noise:
    if not sigma > 0:
        raise DataError(f"The scan shows no noise at all (by {method}). Give measured volumes, not a simulation.")
    return Noise(sigma, method)


def _robust_sd(values: Float[Tensor, " v"]) -> Float[Tensor, ""]:
    return MAD_TO_SD * _median_of_rounded((values - values.median()).abs())


def _median_of_rounded(sizes: Float[Tensor, " v"]) -> Float[Tensor, ""]:
    """The median of numbers from 0 on that a scanner may have rounded.

    Equal ones are taken as spread evenly, halfway to the next smaller and larger. Of whole numbers the plain median is
    one itself: with noise of one or two units it is off by up to a half.
    """
    levels, counts = torch.unique(sizes, return_counts=True)
    upto = counts.cumsum(dim=0)
    at = int(torch.searchsorted(upto, (len(sizes) + 1) // 2))
    low = (levels[at - 1] + levels[at]) / 2 if at > 0 else levels.new_zeros(())
    high = (levels[at] + levels[at + 1]) / 2 if at + 1 < len(levels) else levels[at]
    share = (len(sizes) / 2 - (upto[at] - counts[at])) / counts[at]
    return torch.lerp(low, high, share.to(low.dtype))


def _robust_covariance(values: Float[Tensor, "v n"]) -> Float[Tensor, "n n"]:
    """Covariance up to a factor, by Tyler's iteration: every voxel counts the same, however strong its borders."""
    covariance = values.mT @ values
    tiny = torch.finfo(values.dtype).tiny
    for _ in range(_ITERATIONS):
        covariance = covariance / covariance.trace().clamp(min=tiny)
        square = (values @ torch.linalg.pinv(covariance, hermitian=True) * values).sum(dim=-1)
        weights = torch.where(square > 0, 1 / square.clamp(min=tiny), 0)
        covariance = (values * weights[:, None]).mT @ values
    return covariance


def _rayleigh_sigma(values: Float[Tensor, " v"]) -> float | None:
    """σ from the median, the bright tail cut off again and again until nothing changes."""
    ordered = torch.from_numpy(np.sort(values.cpu().numpy()))  # three times as fast as torch's, which keeps the places
    kept = len(ordered) // 2  # the darker half: most heads leave more air than tissue outside the mask
    for _ in range(_ITERATIONS):
        low, median, high = (float(ordered[int(share * kept)]) for share in (0.25, 0.5, 0.75))
        limit = TAIL_SIGMAS * median / RAYLEIGH_QUARTILES[1]
        now = int(torch.searchsorted(ordered, limit))
        if now == kept:
            break
        kept = now
    expected = (RAYLEIGH_QUARTILES[0] / RAYLEIGH_QUARTILES[1], RAYLEIGH_QUARTILES[2] / RAYLEIGH_QUARTILES[1])
    shapes = (low / median, high / median) if median > 0 else (0.0, 0.0)
    fits = all(abs(shape / wanted - 1) < QUARTILE_TOLERANCE for shape, wanted in zip(shapes, expected, strict=True))
    return median / RAYLEIGH_QUARTILES[1] if fits else None


def _high_pass(volume: Float[Tensor, "x y z"]) -> Float[Tensor, "u v w"]:
    """(1, −2, 1)/√6 along every axis; two voxels shorter on each."""
    for axis in range(3):
        volume = volume.diff(n=2, dim=axis) / 6**0.5
    return volume


def _high_pass_is_inside(mask: Mask) -> Bool[Tensor, "u v w"]:
    """Where all 27 voxels that the high-pass reads are in the mask."""
    for axis in range(3):
        count = mask.shape[axis]
        mask = mask.narrow(axis, 0, count - 2) & mask.narrow(axis, 1, count - 2) & mask.narrow(axis, 2, count - 2)
    return mask


def _grown(mask: Mask, voxels: int) -> Mask:
    """The mask grown by this many voxels along each axis, corners included."""
    for axis in range(3):
        count, grown = mask.shape[axis], mask.clone()
        for step in range(1, min(voxels, count - 1) + 1):
            grown.narrow(axis, step, count - step).logical_or_(mask.narrow(axis, 0, count - step))
            grown.narrow(axis, 0, count - step).logical_or_(mask.narrow(axis, step, count - step))
        mask = grown
    return mask
