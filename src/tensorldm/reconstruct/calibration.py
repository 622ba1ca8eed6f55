"""Do the intervals hold the truth? How often they do, and the factors with which they do so as often as they say.

Only virtual subjects and full reference scans know the truth; fit on anatomies that the model has not seen, and
measure on yet others.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, principal_direction
from tensorldm.errors import DataError
from tensorldm.metrics.ranges import V1_MIN_FA
from tensorldm.reconstruct.uncertainty import LEVEL, Calibration, summarise


class Coverage(NamedTuple):
    """Share of voxels whose truth lies within its interval or cone; v1 where the true FA > ``V1_MIN_FA``."""

    fa: float
    md: float
    v1: float


Subjects = Iterable[tuple[Float[Tensor, "k v 6"], Float[Tensor, "v 6"]]]
"""Samples inside the mask and the true tensors of the same voxels, subject by subject."""


def measure_coverage(subjects: Subjects, *, level: float = LEVEL, calibration: Calibration | None = None) -> Coverage:
    """How often the truth lies inside, over all voxels of all subjects; it should be ``level``."""
    factor = calibration or Calibration()
    ratios = _pooled_ratios(subjects, level)
    return Coverage(
        fa=float(np.mean(ratios.fa <= factor.fa)),
        md=float(np.mean(ratios.md <= factor.md)),
        v1=float(np.mean(ratios.v1 <= factor.v1)),
    )


def fit_calibration(subjects: Subjects, *, level: float = LEVEL, source: str) -> Calibration:
    """The factors with which ``level`` of all voxels are covered; fit them on anatomies the model has not seen.

    Half-widths grow in proportion to the factor, so it is a quantile: of each voxel's error over its half-width.
    """
    ratios = _pooled_ratios(subjects, level)
    fa, md, v1 = (float(np.quantile(part, level, method="higher")) for part in (ratios.fa, ratios.md, ratios.v1))
    if not all(0 < factor < float("inf") for factor in (fa, md, v1)):
        raise DataError(
            f"The samples of {source} cannot be calibrated: in more than {1 - level:.0%} of the voxels they do not "
            "differ at all, or all of them are exact. Draw at least two samples per subject from different noise."
        )
    return Calibration(fa=fa, md=md, v1=v1, source=source)


class _Ratios(NamedTuple):
    """Error over uncalibrated half-width, a number per voxel.

    Cones are left uncut: no angle is larger than 90°, so cutting them there covers no voxel less.
    """

    fa: np.ndarray
    md: np.ndarray
    v1: np.ndarray
    """Only where the truth has a direction."""


def _pooled_ratios(subjects: Subjects, level: float) -> _Ratios:
    parts = [_ratios(samples, truth, level) for samples, truth in subjects]
    if not parts:
        raise DataError("No subject to compare intervals with. Give the samples and true tensors of one at least.")
    pooled = _Ratios(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    if len(pooled.v1) == 0:
        raise DataError(f"No voxel of the {len(parts)} subjects has a true FA above {V1_MIN_FA:g}. Give whole brains.")
    return pooled


def _ratios(samples: Tensor, truth: Tensor, level: float) -> _Ratios:
    if len(samples) < 2:
        raise DataError("One sample of a subject has no spread to compare its error with. Draw two or more.")
    summary = summarise(samples, level)
    fa = fractional_anisotropy(truth)
    directed = fa > V1_MIN_FA
    angle = angle_degrees(summary.v1, principal_direction(truth))[directed]
    return _Ratios(
        fa=_ratio((fa - summary.fa.mean).abs(), summary.fa.half_width),
        md=_ratio((mean_diffusivity(truth) - summary.md.mean).abs(), summary.md.half_width),
        v1=_ratio(angle, summary.cone_degrees[directed]),
    )


def _ratio(error: Tensor, half_width: Tensor) -> np.ndarray:
    """Without an error the width does not matter; an error where there is no width is never covered."""
    return torch.where(error > 0, error / half_width, 0).double().cpu().numpy()
