"""Does the tensor explain the scan? The residual of the measured signals in units of their noise."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.signal import B0_MAX_S_PER_MM2, predict_signal
from tensorldm.errors import DataError
from tensorldm.shapes import BVals, Directions, Packed, Scalars

_HIGH_SNR = 20.0
"""From here on the SD of a magnitude is 1 − 1/(4·SNR²) to six digits, and the exact form loses them."""


def consistency(
    signal: Float[Tensor, "*voxels n"],
    packed: Packed,
    s0: Scalars,
    bvals: BVals,
    directions: Directions,
    *,
    sigma: float,
) -> Scalars:
    """Root mean square, over the weighted volumes, of (measured − expected signal)/SD [E1].

    About 1 where the tensor is right and all that differs is noise; below 1 where the tensor follows the noise of this
    very scan (0 for an exact fit); well above 1 where it contradicts the data. ``s0`` is the mean of the scan's b=0
    volumes, whose noise the expected signals inherit. Measured magnitudes have Rician noise of level ``sigma``: their
    mean stays at 1.25σ where the signal has decayed, and they vary less there.
    """
    weighted = bvals > B0_MAX_S_PER_MM2
    if weighted.all() or not weighted.any():
        found = "no b=0 volume" if weighted.all() else "no weighted volume"
        raise DataError(f"{found} among {len(bvals)}: a residual needs both. Give b=0 and diffusion-weighted volumes.")
    assert sigma > 0, "a residual in units of the noise needs noise"
    true_s0 = (s0.square() - sigma**2).clamp(min=0).sqrt()  # a magnitude's mean is about √(signal² + σ²)
    attenuation = predict_signal(packed, torch.ones_like(s0), bvals[weighted], directions[weighted])
    expected = _rician(true_s0.unsqueeze(-1) * attenuation / sigma)
    # S0's own error is scaled by the attenuation, and by how much the magnitude's mean follows the signal.
    inherited = (attenuation * expected.slope).square() / int((~weighted).sum())
    residual = signal[..., weighted.to(signal.device)] / sigma - expected.mean
    return (residual.square() / (expected.sd.square() + inherited)).mean(dim=-1).sqrt()


class _Rician(NamedTuple):
    """Mean and SD of a magnitude, and the derivative of its mean, in units of σ."""

    mean: Tensor
    sd: Tensor
    slope: Tensor


def _rician(snr: Tensor) -> _Rician:
    """Moments of Rice's distribution: √(π/2)·L½(−SNR²/2), with exponentially scaled Bessel functions."""
    half = snr.square() / 4
    zeroth, first = torch.special.i0e(half), torch.special.i1e(half)
    mean = math.sqrt(math.pi / 2) * ((1 + 2 * half) * zeroth + 2 * half * first)
    slope = math.sqrt(math.pi / 8) * snr * (zeroth + first)
    low = snr.clamp(max=_HIGH_SNR)
    variance = torch.where(snr < _HIGH_SNR, 2 + low.square() - mean.square(), 1 - 0.5 / snr.square())
    return _Rician(mean, variance.clamp(min=0).sqrt(), slope)
