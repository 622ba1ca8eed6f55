"""A linear probe from sums alone: least squares and R² without keeping any voxel.

A subject's features (n voxels, p channels) and target become means and centred sums of products; these add up over
subjects, so that a probe can be fitted on some and judged on others after every scan has been forgotten.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

RIDGE: Final = 1e-9
"""Relative to the mean variance of a feature: channels that are constant or repeat others must not break the solve."""


@dataclass(frozen=True, eq=False)
class Moments:
    """All that least squares needs to know of some voxels."""

    count: int
    feature_mean: Float[Tensor, " p"]
    target_mean: float
    feature_products: Float[Tensor, "p p"]
    """Centred."""
    feature_target: Float[Tensor, " p"]
    target_squares: float


@dataclass(frozen=True, eq=False)
class Linear:
    """Weights and offset."""

    weights: Float[Tensor, " p"]
    offset: float


def moments(features: Float[Tensor, "n p"], target: Float[Tensor, " n"]) -> Moments:
    """The sums of one subject, in double precision."""
    x, y = features.double(), target.double()
    mean, target_mean = x.mean(dim=0), y.mean()
    x, y = x - mean, y - target_mean
    return Moments(len(y), mean.cpu(), float(target_mean), (x.T @ x).cpu(), (x.T @ y).cpu(), float(y @ y))


def joined(parts: Sequence[Moments]) -> Moments:
    """The sums of several subjects together."""
    return reduce(_add, parts)


def fit(known: Moments) -> Linear:
    """Least squares with an offset."""
    size = len(known.feature_mean)
    ridge = RIDGE * known.feature_products.diagonal().mean().clamp(min=torch.finfo(torch.float64).tiny)
    weights = torch.linalg.solve(
        known.feature_products + ridge * torch.eye(size, dtype=torch.float64), known.feature_target
    )
    return Linear(weights, known.target_mean - float(known.feature_mean @ weights))


def r_squared(probe: Linear, unseen: Moments) -> float:
    """Share of the target's variance, about its own mean, that the probe explains; negative where it misleads."""
    w = probe.weights
    bias = unseen.target_mean - float(unseen.feature_mean @ w) - probe.offset
    squares = unseen.target_squares - 2 * float(w @ unseen.feature_target) + float(w @ unseen.feature_products @ w)
    return 1 - (squares + unseen.count * bias**2) / unseen.target_squares


def _add(a: Moments, b: Moments) -> Moments:
    """Centred sums of two sets, by how far their means are apart."""
    count = a.count + b.count
    apart, target_apart = b.feature_mean - a.feature_mean, b.target_mean - a.target_mean
    weight = a.count * b.count / count
    return Moments(
        count=count,
        feature_mean=a.feature_mean + apart * b.count / count,
        target_mean=a.target_mean + target_apart * b.count / count,
        feature_products=a.feature_products + b.feature_products + weight * torch.outer(apart, apart),
        feature_target=a.feature_target + b.feature_target + weight * target_apart * apart,
        target_squares=a.target_squares + b.target_squares + weight * target_apart**2,
    )
