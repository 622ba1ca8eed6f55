"""Matrix logarithm and exponential, projection to positive definite tensors, and Log-Euclidean geometry [E11].

Gradients are finite and right for every tensor, isotropic ones included (see ``spectral``).
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.packing import frobenius
from tensorldm.dti.spectral import SpectralFunction, apply_to_eigenvalues
from tensorldm.shapes import Packed, Scalars

EIGENVALUE_FLOOR_MM2_PER_S = 1e-6
"""[choice: eigenvalue-floor] Eigenvalues are clamped here before the logarithm of the measure [E11]: about 1/500 of
white-matter RD."""
CONTINUATION_FLOOR_MM2_PER_S = 5e-5
"""[choice: lem-loss] Below this the loss form of the logarithm goes on as a straight line, so that a negative
eigenvalue still feels a pull upwards and a small one no explosion."""


def log(packed: Packed, floor: float = EIGENVALUE_FLOOR_MM2_PER_S) -> Packed:
    """Matrix logarithm with eigenvalues clamped at ``floor``; the form used for measuring."""

    def value(x: Tensor) -> Tensor:
        return x.clamp(min=floor).log()

    def divided_difference(a: Tensor, b: Tensor) -> Tensor:
        return _log_difference(a.clamp(min=floor), b.clamp(min=floor)) * _clamp_difference(a, b, floor)

    return apply_to_eigenvalues(SpectralFunction(value, divided_difference), packed)


def log_continued(packed: Packed, floor: float = CONTINUATION_FLOOR_MM2_PER_S) -> Packed:
    """Matrix logarithm continued below ``floor`` by its tangent; the form used in the loss."""

    def value(x: Tensor) -> Tensor:
        return x.clamp(min=floor).log() + (x.clamp(max=floor) - floor) / floor

    def divided_difference(a: Tensor, b: Tensor) -> Tensor:
        above = _clamp_difference(a, b, floor)
        return _log_difference(a.clamp(min=floor), b.clamp(min=floor)) * above + (1 - above) / floor

    return apply_to_eigenvalues(SpectralFunction(value, divided_difference), packed)


def exp(packed: Packed) -> Packed:
    """Matrix exponential: the inverse of ``log`` for positive definite tensors."""
    return apply_to_eigenvalues(SpectralFunction(torch.exp, _exp_difference), packed)


def project_spd(packed: Packed, floor: float = EIGENVALUE_FLOOR_MM2_PER_S) -> Packed:
    """The nearest tensor (in the Frobenius norm) with no eigenvalue below ``floor``."""

    def value(x: Tensor) -> Tensor:
        return x.clamp(min=floor)

    def divided_difference(a: Tensor, b: Tensor) -> Tensor:
        return _clamp_difference(a, b, floor)

    return apply_to_eigenvalues(SpectralFunction(value, divided_difference), packed)


def log_euclidean_distance(a: Packed, b: Packed, floor: float = EIGENVALUE_FLOOR_MM2_PER_S) -> Scalars:
    """‖Log(A) − Log(B)‖_F [E11]."""
    return frobenius(log(a, floor) - log(b, floor))


def log_euclidean_mean(
    stack: Float[Tensor, "k *voxels 6"],
    weights: Float[Tensor, "k *#voxels"] | None = None,
    floor: float = EIGENVALUE_FLOOR_MM2_PER_S,
) -> Packed:
    """Mean of k tensors per voxel, taken of their logarithms: positive definite, and free of swelling.

    Weights need not sum to one. Where they sum to zero there is nothing to average and the tensor is zero.
    """
    logs = log(stack, floor)
    if weights is None:
        return exp(logs.mean(dim=0))
    total = weights.sum(dim=0)
    known = total > 0
    share = (weights / torch.where(known, total, 1)).unsqueeze(-1)
    mean = exp((share * logs).sum(dim=0))
    return torch.where(known.unsqueeze(-1), mean, 0)


def _log_difference(a: Tensor, b: Tensor) -> Tensor:
    """(ln a − ln b)/(a − b) for a, b > 0. As 2·atanh(r)/(r·(a + b)) with r = (a − b)/(a + b) it has no cancellation."""
    total = a + b
    ratio = (a - b) / total
    return 2 * _over_argument(torch.atanh, ratio, 1 / 3) / total


def _exp_difference(a: Tensor, b: Tensor) -> Tensor:
    """(eᵃ − eᵇ)/(a − b) = e^((a+b)/2)·sinh(h)/h with h = (a − b)/2."""
    return ((a + b) / 2).exp() * _over_argument(torch.sinh, (a - b) / 2, 1 / 6)


def _clamp_difference(a: Tensor, b: Tensor, floor: float) -> Tensor:
    """(max(a, floor) − max(b, floor))/(a − b): 1 above, 0 below, between them the share above."""
    gap = a - b
    share = (a.clamp(min=floor) - b.clamp(min=floor)) / torch.where(gap == 0, 1, gap)
    return torch.where(gap == 0, (a > floor).to(a), share).clamp(0, 1)


def _over_argument(function: Callable[[Tensor], Tensor], x: Tensor, cubic: float) -> Tensor:
    """f(x)/x for f(x) = x + cubic·x³ + …; the series where the quotient would be 0/0."""
    small = x.abs() < torch.finfo(x.dtype).eps ** 0.25
    safe = torch.where(small, 1, x)
    return torch.where(small, 1 + cubic * x * x, function(safe) / safe)
