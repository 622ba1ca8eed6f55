"""Log-linear least-squares fits of the tensor: ordinary (OLS) and weighted (WLS).

Signals below ``min_signal`` are raised to it before the logarithm, as in DIPY, and with DIPY's default. Negative
eigenvalues are kept as they come (DIPY clips them): they tell how noisy the fit is. WLS weights are the squares of
the signals that the OLS fit predicts, one pass, as in DIPY.

``grad_dev`` is the gradient-nonlinearity field of the HCP and FSL: nine numbers per voxel, the 3×3 matrix L by
columns (L[i, j] is number 3j + i), in the axes of the directions. The gradient that a voxel sees is (I + L)g, and b
grows with its squared length. So ln S = ln S0 − b gᵀ(I + L)ᵀ D (I + L)g: the common fit gives (I + L)ᵀ D (I + L),
and undoing this congruence gives exactly the least-squares D, without a design matrix per voxel.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.packing import congruence
from tensorldm.dti.signal import design_matrix
from tensorldm.errors import DataError
from tensorldm.shapes import BVals, Directions, Packed, Scalars

Signals = Float[Tensor, "*voxels n"]
GradientDeviations = Float[Tensor, "*voxels 9"]

MIN_SIGNAL = 1e-4
"""Floor of the signal before the logarithm, in the units of the scan; DIPY's default."""
_CPU_CHUNK_SIGNALS = 1 << 18
"""Signals worked on at once: their logarithms stay in the cache, and memory stays bounded."""
_GPU_CHUNK_SIGNALS = 1 << 26


def fit_ols(
    signal: Signals, bvals: BVals, directions: Directions, *, min_signal: float = MIN_SIGNAL
) -> tuple[Packed, Scalars]:
    """Ordinary least squares on ln S: the tensor and S0."""
    design = _determined_design(bvals, directions)
    inverse = torch.linalg.pinv(design).to(signal)

    def fit(logs: Tensor) -> Tensor:
        return torch.matmul(inverse, logs)

    return _fit_in_chunks(signal, fit, min_signal)


def fit_wls(
    signal: Signals, bvals: BVals, directions: Directions, *, min_signal: float = MIN_SIGNAL
) -> tuple[Packed, Scalars]:
    """Weighted least squares on ln S: the tensor and S0."""
    design = _determined_design(bvals, directions)
    # Columns of equal size: the normal equations then keep their digits in float32.
    scale = design.abs().amax(dim=0)
    unit = design / scale
    inverse = torch.linalg.pinv(unit).to(signal)
    products = torch.einsum("ni,nj->ijn", unit, unit).flatten(0, 1).to(signal)
    rows, scale = unit.to(signal), scale.to(signal)[:, None]

    def fit(logs: Tensor) -> Tensor:
        ordinary = torch.matmul(inverse, logs)
        predicted = torch.matmul(rows, ordinary)
        weights = (2 * (predicted - predicted.amax(dim=0))).exp()
        normal = torch.matmul(products, weights).reshape(7, 7, -1)
        # Solving for the small correction rather than for the whole leaves less to rounding.
        right = torch.matmul(rows.mT, weights * (logs - predicted))
        return (ordinary + _solve_positive(normal, right)) / scale

    return _fit_in_chunks(signal, fit, min_signal)


def fit_ols_nonlinear_gradients(
    signal: Signals,
    bvals: BVals,
    directions: Directions,
    grad_dev: GradientDeviations,
    *,
    min_signal: float = MIN_SIGNAL,
) -> tuple[Packed, Scalars]:
    """OLS where the gradients deviate from voxel to voxel."""
    packed, s0 = fit_ols(signal, bvals, directions, min_signal=min_signal)
    return undo_deviation(packed, grad_dev), s0


def fit_wls_nonlinear_gradients(
    signal: Signals,
    bvals: BVals,
    directions: Directions,
    grad_dev: GradientDeviations,
    *,
    min_signal: float = MIN_SIGNAL,
) -> tuple[Packed, Scalars]:
    """WLS where the gradients deviate from voxel to voxel."""
    packed, s0 = fit_wls(signal, bvals, directions, min_signal=min_signal)
    return undo_deviation(packed, grad_dev), s0


def undo_deviation(packed: Packed, grad_dev: GradientDeviations) -> Packed:
    """The tensor, from one that was fitted as if every voxel had seen the nominal gradients."""
    return congruence(packed, _inverse(deviation_matrices(grad_dev.to(packed))).mT)


def deviation_matrices(grad_dev: GradientDeviations) -> Float[Tensor, "*voxels 3 3"]:
    """I + L per voxel: what the scanner's nominal gradient is multiplied by."""
    by_columns = grad_dev.reshape(*grad_dev.shape[:-1], 3, 3).mT
    return torch.eye(3, dtype=grad_dev.dtype, device=grad_dev.device).add(by_columns)


def log_signal(signal: Signals, *, min_signal: float = MIN_SIGNAL) -> Signals:
    """ln S with the signal raised to the floor first."""
    return signal.clamp(min=min_signal).log()


def check_determined(bvals: BVals, directions: Directions) -> None:
    """Refuse gradients that do not determine a tensor, before any voxel is read."""
    _determined_design(bvals, directions)


def _determined_design(bvals: Tensor, directions: Tensor) -> Tensor:
    """The design matrix in float64 on the CPU (it is tiny), refused where it does not determine a tensor."""
    design = design_matrix(bvals.double().cpu(), directions.double().cpu())
    scale = design.abs().amax(dim=0).clamp(min=torch.finfo(design.dtype).tiny)
    rank = int(torch.linalg.matrix_rank(design / scale, rtol=1e-6))
    if rank < 7:
        raise DataError(
            f"{len(bvals)} volumes determine {rank} of the 7 unknowns of a tensor fit. "
            "Give at least one b=0 volume and six directions that do not lie on a cone."
        )
    return design


def _fit_in_chunks(signal: Tensor, fit: Callable[[Tensor], Tensor], min_signal: float) -> tuple[Tensor, Tensor]:
    """Apply ``fit`` (ln S as n × voxels to coefficients as 7 × voxels) so that temporary memory stays bounded."""
    voxels = signal.shape[:-1]
    flat = signal.reshape(-1, signal.shape[-1])
    at_once = _CPU_CHUNK_SIGNALS if signal.device.type == "cpu" else _GPU_CHUNK_SIGNALS
    with torch.autocast(signal.device.type, enabled=False):  # bfloat16 would cost three digits
        parts = [
            fit(log_signal(part, min_signal=min_signal).mT)
            for part in torch.split(flat, max(1, at_once // signal.shape[-1]))
        ]
    coefficients = torch.cat(parts, dim=1).reshape(7, *voxels)
    return coefficients[:6].movedim(0, -1), coefficients[6].exp()


def _solve_positive(matrices: Tensor, right: Tensor) -> Tensor:
    """Solve A x = r for positive definite A, i × j × voxels, by elimination on all voxels at once.

    A pivot that rounding has eaten is raised to the rounding error, so that no voxel can come out infinite.
    """
    left = torch.cat((matrices, right[:, None]), dim=1)
    least = torch.finfo(matrices.dtype).eps * matrices.diagonal(dim1=0, dim2=1).amax(dim=-1)
    reduced = []
    for _ in range(len(matrices)):
        row = left[0] / torch.maximum(left[0, 0], least)
        left = left[1:, 1:] - left[1:, :1] * row[1:]
        reduced.append(row[1:])
    solution: list[Tensor] = []
    for row in reversed(reduced):
        known = sum((a * x for a, x in zip(row[:-1], solution, strict=True)), start=torch.zeros_like(row[-1]))
        solution.insert(0, row[-1] - known)
    return torch.stack(solution)


def _inverse(matrices: Tensor) -> Tensor:
    """3×3 inverses from cross products of the columns: no LAPACK call per voxel."""
    a, b, c = matrices.unbind(-1)
    adjugate = torch.stack((torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)), dim=-2)
    determinant = (a * adjugate[..., 0, :]).sum(dim=-1)
    return adjugate / determinant[..., None, None]
