"""Tensors from a b=0 and a few directions without learning: ADE and the minimum-norm tensor.

All start from the apparent diffusion coefficient along each direction, ADC = −ln(S/S0)/b = gᵀDg. Where there are
several b=0 volumes S0 is their geometric mean, the least-squares choice for logarithms [choice: b0-of-adc].
Three directions leave three of the six components unmeasured; each method fills them by a rule of its own.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.dti.axes import nearest_to_axes
from tensorldm.dti.fit import MIN_SIGNAL, Signals, log_signal
from tensorldm.dti.logarithm import project_spd
from tensorldm.dti.signal import B0_MAX_S_PER_MM2, design_matrix
from tensorldm.errors import DataError
from tensorldm.shapes import BVals, Directions, Packed

SMALLEST_CONTRAST = 0.05
"""[choice: minimum-norm-ridge] How much an ADC must change, root mean square over the directions, with one unit of a
pattern of anisotropy for the pattern to count as measured. Perpendicular directions give 0.58, uniformly spread ones
0.37; below 0.05 noise would be amplified more than twentyfold, and a ridge damps the pattern instead."""
_AXES_RANK_TOLERANCE = 1e-3


class _Adc(NamedTuple):
    values: Tensor
    directions: Tensor
    """float64 on the CPU: the rules below are tiny matrices, the same for all voxels."""


def ade(signal: Signals, bvals: BVals, directions: Directions, *, min_signal: float = MIN_SIGNAL) -> Packed:
    """Analytic diagonal estimation for the directions as they are [choice: tilted-directions].

    The diagonal solves gᵀ diag(d) g = ADC by least squares, off-diagonals are 0, and the result is projected to
    positive definite tensors.
    """
    adc = _apparent_diffusion(signal, bvals, directions, min_signal)
    squares = adc.directions**2
    rank = int(torch.linalg.matrix_rank(squares, rtol=_AXES_RANK_TOLERANCE))
    if rank < 3:
        raise DataError(
            f"{len(squares)} weighted directions measure {rank} of the three diagonal components. "
            "Give three directions near the x, y and z axes."
        )
    return _diagonal(_apply_rule(torch.linalg.pinv(squares), adc.values))


def ade_literal(signal: Signals, bvals: BVals, directions: Directions, *, min_signal: float = MIN_SIGNAL) -> Packed:
    """Analytic diagonal estimation as the paper words it: the nearest gradient is taken for the axis itself.

    Beside ``ade``, since the paper leaves open which of the two it means [choice: ade-directions].

    Every direction serves one axis at most, and a direction and its negative count as the same. The result is
    projected to positive definite tensors.
    """
    adc = _apparent_diffusion(signal, bvals, directions, min_signal)
    if len(adc.directions) < 3:
        raise DataError(f"{len(adc.directions)} weighted directions for three axes. Give one near each of x, y and z.")
    return _diagonal(adc.values[..., nearest_to_axes(adc.directions).indices])


def minimum_norm(signal: Signals, bvals: BVals, directions: Directions, *, min_signal: float = MIN_SIGNAL) -> Packed:
    """The least anisotropic tensor that explains the measurements.

    D = m·I + A with A traceless: m is free, ‖A‖_F is the least possible with gᵀDg = ADC, or with the least squared
    misfit where there are more directions than unknowns. Equal ADCs give an isotropic tensor whatever the
    directions; on the axes it is ADE; six good directions give the tensor itself. Patterns of anisotropy that the
    directions hardly see (``SMALLEST_CONTRAST``) are damped by a ridge that lifts their contrast to that value.
    Negative eigenvalues are kept.
    """
    rule = minimum_norm_rule(bvals, directions)
    return _apply_rule(rule, apparent_diffusion(signal, bvals, min_signal=min_signal))


def minimum_norm_rule(bvals: BVals, directions: Directions) -> Float[Tensor, "6 n"]:
    """The matrix that takes the ADCs of all volumes to ``minimum_norm``'s tensor, zero for b=0; float64 on the CPU."""
    weighted = _weighted(bvals)
    rule = torch.zeros(6, len(bvals), dtype=torch.float64)
    rule[:, weighted] = _rule_of_weighted(_unit(directions, weighted))
    return rule


def _rule_of_weighted(directions: Tensor) -> Float[Tensor, "6 n"]:
    n = len(directions)
    quadratic = -design_matrix(torch.ones(n, dtype=directions.dtype), directions)[:, :6]
    basis = _traceless_basis().to(directions)
    contrast = quadratic @ basis
    # The free mean takes what is common to all ADCs; anisotropy has to explain their differences.
    centre = torch.eye(n, dtype=directions.dtype) - 1 / n
    left, sizes, right = torch.linalg.svd(centre @ contrast, full_matrices=False)
    least = SMALLEST_CONTRAST * n**0.5
    anisotropy = right.mT @ ((sizes / sizes.clamp(min=least) ** 2)[:, None] * left.mT) @ centre
    mean = (torch.eye(n, dtype=directions.dtype) - contrast @ anisotropy).mean(dim=0)
    identity = directions.new_tensor([1, 1, 1, 0, 0, 0])
    return torch.outer(identity, mean).add(basis @ anisotropy)


def _traceless_basis() -> Float[Tensor, "6 5"]:
    """Five traceless patterns in packed form, orthonormal in the Frobenius norm."""
    basis = torch.zeros(6, 5, dtype=torch.float64)
    basis[:3, 0] = torch.tensor([1, -1, 0]) / 2**0.5
    basis[:3, 1] = torch.tensor([1, 1, -2]) / 6**0.5
    basis[3:, 2:] = torch.eye(3) / 2**0.5
    return basis


def apparent_diffusion(signal: Signals, bvals: Float[Tensor, "*scans n"], *, min_signal: float = MIN_SIGNAL) -> Signals:
    """ADC = −ln(S/S0)/b of every volume, zero for b=0; S0 is the geometric mean of those [choice: b0-of-adc].

    One table of b-values for all voxels, or one for each of several scans along the signal's last axes but one.
    """
    bvals = bvals.to(signal.device, signal.dtype, non_blocking=signal.is_cuda)
    weighted = bvals > B0_MAX_S_PER_MM2
    logs = log_signal(signal, min_signal=min_signal)
    b0 = (logs * ~weighted).sum(dim=-1, keepdim=True) / (~weighted).sum(dim=-1, keepdim=True)
    return torch.where(weighted, (b0 - logs) / bvals.clamp_min(B0_MAX_S_PER_MM2), 0.0)


def _apparent_diffusion(signal: Tensor, bvals: Tensor, directions: Tensor, min_signal: float) -> _Adc:
    """ADCs of the weighted volumes alone, with their directions."""
    weighted = _weighted(bvals)
    values = apparent_diffusion(signal, bvals, min_signal=min_signal)[..., weighted.to(signal.device)]
    return _Adc(values, _unit(directions, weighted))


def _weighted(bvals: BVals) -> Bool[Tensor, " n"]:
    """Which volumes are weighted, on the CPU; refused where none is, or where there is no b=0."""
    weighted = bvals.cpu() > B0_MAX_S_PER_MM2
    if weighted.all() or not weighted.any():
        found = "no b=0 volume" if weighted.all() else "no weighted volume"
        raise DataError(f"{found} among {len(bvals)}: an ADC needs both. Give b=0 and diffusion-weighted volumes.")
    return weighted


def _unit(directions: Directions, weighted: Bool[Tensor, " n"]) -> Float[Tensor, "m 3"]:
    return torch.nn.functional.normalize(directions.double().cpu()[weighted], dim=-1)


def _apply_rule(rule: Tensor, adc: Tensor) -> Tensor:
    with torch.autocast(adc.device.type, enabled=False):  # bfloat16 would cost three digits
        return torch.matmul(adc, rule.mT.to(adc))


def _diagonal(values: Tensor) -> Tensor:
    return project_spd(torch.cat((values, torch.zeros_like(values)), dim=-1))
