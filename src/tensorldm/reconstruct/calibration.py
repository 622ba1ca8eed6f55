"""Do the intervals hold the truth? How often they do, and the factors with which they do so as often as they say.

Only virtual subjects and full reference scans know the truth; fit on anatomies that the model has not seen, and
measure on yet others. A subject is judged once, at one level and without factors: half-widths of every other level and
factor are in proportion to it.
Axes: k sample, v voxel.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, principal_direction
from tensorldm.errors import DataError
from tensorldm.metrics.ranges import V1_MIN_FA
from tensorldm.reconstruct.likeness import TISSUES, Triple, tissue_likeness
from tensorldm.reconstruct.quantiles import fit_quantile
from tensorldm.reconstruct.uncertainty import (
    HIGHEST_FA,
    LEVEL,
    WIDEST_CONE_DEGREES,
    Calibration,
    cone_growth,
    interval_growth,
    summarise,
)

Quantity = Literal["fa", "md", "v1"]
QUANTITIES: Final[tuple[Quantity, ...]] = ("fa", "md", "v1")
Values = Float[ndarray, " v"]
LEAST_OF_A_TISSUE: Final = 200.0
"""Voxels' worth of a tissue that its own factor needs; with fewer it has that of the whole."""
MOST_VOXELS: Final = 400_000
"""That three factors are fitted to, taken evenly from all: more change the third digit."""
SMALLEST_RATIO, LARGEST_RATIO = 1e-6, 1e6


class Coverage(NamedTuple):
    """Share of voxels whose truth lies within its interval or cone; v1 where the true FA > ``V1_MIN_FA``."""

    fa: float
    md: float
    v1: float


class JudgedPart(NamedTuple):
    """One quantity of a subject, voxel by voxel: uncalibrated half-width (or cone) at ``LEVEL``, and the error."""

    half_width: Values
    error: Values

    @property
    def ratio(self) -> Values:
        """The factor that a voxel would need. Without an error width does not matter; without a width none helps."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.error > 0, self.error / self.half_width, 0)


@dataclass(frozen=True, eq=False)
class Judged:
    """What the samples of a subject say, and how far a truth is from it."""

    num_samples: int
    mean_fa: Values
    mean_md: Values
    fa: JudgedPart
    md: JudgedPart
    v1: JudgedPart
    """Degrees. Cones are left uncut: no angle is larger than 90°, so cutting them there covers no voxel less."""
    directed: Bool[ndarray, " v"]
    """Where the truth has a direction: elsewhere ``v1`` means nothing."""

    def counts(self, quantity: Quantity) -> Bool[ndarray, " v"]:
        """Voxels in which a quantity is judged."""
        return self.directed if quantity == "v1" else np.ones_like(self.directed)

    def covered(self, quantity: Quantity, calibration: Calibration, *, level: float) -> Bool[ndarray, " v"]:
        """Where the truth lies within the interval or the cone of this level."""
        part: JudgedPart = getattr(self, quantity)
        return part.error <= self._half_width(quantity, calibration, level)

    def widths(self, quantity: Quantity, calibration: Calibration, *, level: float) -> Values:
        """From end to end of the interval as it is written, cut at what is possible; of v1 half the cone's opening."""
        half = self._half_width(quantity, calibration, level)
        if quantity == "v1":
            return np.asarray(np.minimum(half, WIDEST_CONE_DEGREES))
        mean = self.mean_fa if quantity == "fa" else self.mean_md
        highest = HIGHEST_FA if quantity == "fa" else np.inf
        return np.asarray(np.minimum(mean + half, highest) - np.maximum(mean - half, 0))

    def likeness(self) -> Float[ndarray, "v 3"]:
        """Shares of csf, grey and white, as the samples look."""
        return tissue_likeness(torch.from_numpy(self.mean_fa), torch.from_numpy(self.mean_md)).numpy()

    def _half_width(self, quantity: Quantity, calibration: Calibration, level: float) -> Values:
        part: JudgedPart = getattr(self, quantity)
        growth = cone_growth if quantity == "v1" else interval_growth
        scale = growth(self.num_samples, level) / growth(self.num_samples, LEVEL)
        if quantity == "v1":
            return scale * calibration.v1 * part.half_width
        factors = calibration.scalar_factors(torch.from_numpy(self.mean_fa), torch.from_numpy(self.mean_md))
        return np.asarray(scale * factors[("fa", "md").index(quantity)].numpy() * part.half_width)


def judge(samples: Float[Tensor, "k v 6"], *truths: Float[Tensor, "v 6"]) -> tuple[Judged, ...]:
    """What the samples say, against each of the truths; all on one device."""
    if len(samples) < 2:
        raise DataError("One sample of a subject has no spread to compare its error with. Draw two or more.")
    if not bool(samples.isfinite().all()):
        raise DataError("A subject's samples are not all numbers. Look at the scan and at the model's training.")
    summary = summarise(samples, LEVEL)
    mean_fa, mean_md, fa_half, md_half, cone = (
        _array(values)
        for values in (
            summary.fa.mean,
            summary.md.mean,
            summary.fa.half_width,
            summary.md.half_width,
            summary.cone_degrees,
        )
    )
    return tuple(
        Judged(
            num_samples=len(samples),
            mean_fa=mean_fa,
            mean_md=mean_md,
            fa=JudgedPart(fa_half, _array((fractional_anisotropy(truth) - summary.fa.mean).abs())),
            md=JudgedPart(md_half, _array((mean_diffusivity(truth) - summary.md.mean).abs())),
            v1=JudgedPart(cone, _array(angle_degrees(summary.v1, principal_direction(truth)))),
            directed=(fractional_anisotropy(truth) > V1_MIN_FA).cpu().numpy(),
        )
        for truth in truths
    )


def measure_coverage(
    subjects: Iterable[Judged], *, level: float = LEVEL, calibration: Calibration | None = None
) -> Coverage:
    """How often the truth lies inside, over all voxels of all subjects; it should be ``level``."""
    factors, known = calibration or Calibration(), _known(subjects)
    return Coverage(
        **{
            quantity: float(
                np.mean(
                    np.concatenate(
                        [each.covered(quantity, factors, level=level)[each.counts(quantity)] for each in known]
                    )
                )
            )
            for quantity in QUANTITIES
        }
    )


def fit_calibration(
    subjects: Iterable[Judged], *, level: float = LEVEL, source: str, by_tissue: Collection[Quantity] = ()
) -> Calibration:
    """The factors with which ``level`` of all voxels are covered; fit them on anatomies the model has not seen.

    Half-widths grow in proportion to the factor, so it is a quantile: of each voxel's error over its half-width.
    ``by_tissue`` names those of FA and MD whose factor follows what a voxel looks like: then ``level`` of the voxels
    that look like each tissue are covered.
    """
    known = _known(subjects)
    one = {quantity: _one_factor(known, quantity, level) for quantity in QUANTITIES}
    if not all(0 < factor < float("inf") for factor in one.values()):
        raise DataError(
            f"The samples of {source} cannot be calibrated: in more than {1 - level:.0%} of the voxels they do not "
            "differ at all, or all of them are exact. Draw at least two samples per subject from different noise."
        )
    return Calibration(
        **one,
        source=source,
        fa_by_tissue=_tissue_factors(known, "fa", level, one["fa"]) if "fa" in by_tissue else None,
        md_by_tissue=_tissue_factors(known, "md", level, one["md"]) if "md" in by_tissue else None,
    )


def _one_factor(subjects: Sequence[Judged], quantity: Quantity, level: float) -> float:
    return float(np.quantile(_ratios(subjects, quantity, level), level, method="higher"))


def _tissue_factors(subjects: Sequence[Judged], quantity: Quantity, level: float, one: float) -> Triple:
    """Quantile regression of the logarithm of what each voxel would need on its likeness to each tissue."""
    shares = np.concatenate([each.likeness() for each in subjects])
    needed = np.log(np.clip(_ratios(subjects, quantity, level), SMALLEST_RATIO, LARGEST_RATIO))
    present = shares.sum(axis=0) >= LEAST_OF_A_TISSUE
    every = -(-len(needed) // MOST_VOXELS)
    shares, needed = shares[::every], needed[::every]
    logs = np.full(len(TISSUES), np.log(one))
    logs[present] = fit_quantile(shares[:, present], needed - shares[:, ~present] @ logs[~present], level=level)
    csf, grey, white = (float(factor) for factor in np.exp(logs))
    return csf, grey, white


def _ratios(subjects: Sequence[Judged], quantity: Quantity, level: float) -> Values:
    """What factor each voxel would need at a level."""
    growth = cone_growth if quantity == "v1" else interval_growth
    parts = []
    for each in subjects:
        part: JudgedPart = getattr(each, quantity)
        wider = growth(each.num_samples, level) / growth(each.num_samples, LEVEL)
        parts.append(part.ratio[each.counts(quantity)] / wider)
    return np.concatenate(parts)


def _known(subjects: Iterable[Judged]) -> list[Judged]:
    known = list(subjects)
    if not known:
        raise DataError("No subject to compare intervals with. Give the samples and true tensors of one at least.")
    if not any(each.directed.any() for each in known):
        raise DataError(f"No voxel of the {len(known)} subjects has a true FA above {V1_MIN_FA:g}. Give whole brains.")
    return known


def _array(values: Tensor) -> Values:
    return values.float().cpu().numpy()
