"""From K samples of a voxel's tensor to one tensor and how far it may be off.

The model draws tensors that fit the scan. Were the true tensor one more such draw, the next one of K + 1, intervals
from K of them would be known exactly: mean ± t·SD·√(1 + 1/K) for a scalar, and the F form of the same for an axis.
A model is never that good, so one factor per quantity, fitted on anatomies it has not seen, widens them; it may follow
what tissue a voxel looks like (``Calibration``). Few samples are paid for by the t quantile, not by intervals that are
too short.

Axes: k sample. mm²/s throughout.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import torch
from jaxtyping import Float
from scipy.special import stdtrit
from torch import Tensor

from tensorldm.dti.eigen import compose, eigen, eigenvalues
from tensorldm.dti.logarithm import log_euclidean_mean
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, principal_direction
from tensorldm.dti.null_space import unmeasured_anisotropy
from tensorldm.dti.packing import frobenius, pack
from tensorldm.reconstruct.likeness import Triple, factor_map
from tensorldm.shapes import BVals, Directions, Packed, Scalars, Vectors

Samples = Float[Tensor, "k *voxels 6"]
MeanKind = Literal["arithmetic", "log-euclidean", "eigenvalues"]

MEAN_FLOOR_MM2_PER_S: Final = 1e-4
"""[choice: mean-floor] Eigenvalues are clamped here before the log-Euclidean mean, a third of white-matter RD. At the
floor of the LEM measure, 1e-6, one negative eigenvalue among four would pull the mean down to a quarter."""
LEVEL: Final = 0.95
WIDEST_CONE_DEGREES: Final = 90.0
"""Every axis lies within 90° of every other: the direction is not known at all."""
HIGHEST_FA: Final = 1.0
DIRECTIONLESS_FA: Final = 1e-3
"""Below this FA a tensor has no principal direction, only that of its rounding errors."""


@dataclass(frozen=True)
class Calibration:
    """Factors on the half-widths of the intervals; 1 takes the model at its word."""

    fa: float = 1.0
    md: float = 1.0
    v1: float = 1.0
    source: str = "uncalibrated"
    """What the factors were fitted on, for the sidecar."""
    fa_by_tissue: Triple | None = None
    md_by_tissue: Triple | None = None
    """Where given, they stand in for ``fa`` and ``md``: of voxels that look like csf, grey, white; mixed between."""

    def __post_init__(self) -> None:
        factors = (self.fa, self.md, self.v1, *(self.fa_by_tissue or ()), *(self.md_by_tissue or ()))
        if not all(0 < factor < float("inf") for factor in factors):
            raise ValueError(f"calibration factors are positive numbers, found {', '.join(map(str, factors))}")

    def scalar_factors(self, fa: Scalars, md: Scalars) -> tuple[Scalars, Scalars]:
        """The factors on the intervals of FA and of MD in voxels whose samples have these means."""
        return (
            torch.full_like(fa, self.fa) if self.fa_by_tissue is None else factor_map(self.fa_by_tissue, fa, md),
            torch.full_like(md, self.md) if self.md_by_tissue is None else factor_map(self.md_by_tissue, fa, md),
        )


@dataclass(frozen=True, eq=False)
class Interval:
    """A scalar over the samples: mean and SD as drawn, and the calibrated interval at the level of the ``Spread``."""

    mean: Scalars
    sd: Scalars
    low: Scalars
    high: Scalars


@dataclass(frozen=True, eq=False)
class Spread:
    """How far the samples of each voxel differ, and what that says about the truth."""

    level: float
    fa: Interval
    md: Interval
    v1: Vectors
    """The axis nearest to the samples' directions: the cone's middle."""
    v1_cone_degrees: Scalars
    """Half the opening angle of the cone about ``v1`` that holds the true direction; 90 where nothing is known."""
    prior_sd: Scalars
    """SD (Frobenius norm, as drawn) of the part of the tensor that no measured direction sees."""


def mean_tensor(samples: Samples, kind: MeanKind = "arithmetic", *, floor: float = MEAN_FLOOR_MM2_PER_S) -> Packed:
    """One tensor from the samples; a single sample is returned as it is.

    ``arithmetic`` is the least-squares choice and may keep a negative eigenvalue. ``log-euclidean`` is positive
    definite; eigenvalues below ``floor`` count as ``floor``. ``eigenvalues`` has the axes and the mean diffusivity of
    the arithmetic mean, and as eigenvalues the means of the samples' own: where samples point different ways, their
    mean is rounder than each of them, this tensor is not. [choice: eigenvalue-mean]
    """
    if len(samples) == 1:
        return samples[0]
    if kind == "log-euclidean":
        return log_euclidean_mean(samples, floor=floor)
    mean = samples.mean(dim=0)
    return mean if kind == "arithmetic" else compose(eigenvalues(samples).mean(dim=0), eigen(mean)[1])


def measure_spread(
    samples: Samples,
    *,
    bvals: BVals,
    directions: Directions,
    level: float = LEVEL,
    calibration: Calibration | None = None,
) -> Spread | None:
    """Intervals and cone from K ≥ 2 samples; None from a single one, which has no spread.

    Without ``calibration`` all factors are 1. FA intervals end at 0 and 1, those of MD at 0.
    """
    if len(samples) < 2:
        return None
    factor = calibration or Calibration()
    raw = summarise(samples, level)
    fa_factor, md_factor = factor.scalar_factors(raw.fa.mean, raw.md.mean)
    prior = unmeasured_anisotropy(samples, bvals, directions)
    return Spread(
        level=level,
        fa=raw.fa.interval(fa_factor, highest=HIGHEST_FA),
        md=raw.md.interval(md_factor, highest=float("inf")),
        v1=raw.v1,
        v1_cone_degrees=(factor.v1 * raw.cone_degrees).clamp(max=WIDEST_CONE_DEGREES),
        prior_sd=(frobenius(prior - prior.mean(dim=0)).square().sum(dim=0) / (len(samples) - 1)).sqrt(),
    )


class RawInterval(NamedTuple):
    """A scalar over the samples, and how far the next draw may lie from the mean."""

    mean: Tensor
    sd: Tensor
    half_width: Tensor

    def interval(self, factor: Scalars, *, highest: float) -> Interval:
        """Calibrated, and cut at 0 and at the highest possible value."""
        half = factor * self.half_width
        return Interval(self.mean, self.sd, (self.mean - half).clamp(min=0), (self.mean + half).clamp(max=highest))


class Summary(NamedTuple):
    """All quantities before calibration; a cone may be wider than 90°, or infinite."""

    fa: RawInterval
    md: RawInterval
    v1: Tensor
    cone_degrees: Tensor


def summarise(samples: Samples, level: float) -> Summary:
    """What K ≥ 2 samples say, taking the model at its word."""
    assert 0 < level < 1, "a level is a probability"
    fa = fractional_anisotropy(samples)
    v1, cone = _cone(principal_direction(samples), level)
    # Samples without anisotropy all "agree" on the direction that the eigensolver gives to a sphere.
    cone = torch.where((fa < DIRECTIONLESS_FA).any(dim=0), float("inf"), cone)
    return Summary(_scalar(fa, level), _scalar(mean_diffusivity(samples), level), v1, cone)


def interval_growth(num_samples: int, level: float) -> float:
    """Half-width over SD by Student: the next draw lies within t·SD·√(1 + 1/K) of the mean."""
    return float(stdtrit(num_samples - 1, (1 + level) / 2)) * math.sqrt(1 + 1 / num_samples)


def cone_growth(num_samples: int, level: float) -> float:
    """Cone over the root of the samples' squared angles to its axis, summed.

    Deviations θ from the mean axis are taken as two-dimensional and Gaussian. Then Σθ²/σ² is χ² with 2(K − 1)
    degrees of freedom, the next draw's θ²/(σ²(1 + 1/K)) is χ² with 2, and their ratio has the F distribution, whose
    quantile is closed: θ² = (1 + 1/K)·Σθ²·((1 − level)^(−1/(K − 1)) − 1).
    """
    return math.sqrt((1 + 1 / num_samples) * ((1 - level) ** (-1 / (num_samples - 1)) - 1))


def _scalar(values: Float[Tensor, "k *voxels"], level: float) -> RawInterval:
    sd = values.std(dim=0, correction=1)
    return RawInterval(values.mean(dim=0), sd, interval_growth(len(values), level) * sd)


def _cone(directions: Float[Tensor, "k *voxels 3"], level: float) -> tuple[Vectors, Scalars]:
    """The axis of the mean dyadic, and the angle about it within which the next draw lies."""
    dyadics = pack(directions.unsqueeze(-1) * directions.unsqueeze(-2))
    axis = principal_direction(dyadics.mean(dim=0))
    square = angle_degrees(directions, axis.expand_as(directions)).square().sum(dim=0)
    return axis, cone_growth(len(directions), level) * square.sqrt()
