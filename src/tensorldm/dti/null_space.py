"""Data or prior? The part of a tensor that the measured directions say nothing about.

A weighted volume measures gᵀDg. Tensors A with gᵀAg = 0 for every direction g can be added to D without changing one
signal: they are the null space of the scan. Three perpendicular directions leave three such patterns, the
off-diagonals in their own axes; six well-spread directions leave none.

A pattern that changes the signals only a little is hardly better than one that changes nothing. It counts as
unmeasured below ``SMALLEST_CONTRAST``, the limit under which ``minimum_norm`` damps it as well: at b = 1000 s/mm² and
an SNR of 30 the noise of such a pattern, 1/(b·SNR·0.05) = 7e-4 mm²/s, is as large as white matter's anisotropy
[choice: unmeasured]. The limit is a step and not a ramp, so that what is left is a projection.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.analytic import SMALLEST_CONTRAST
from tensorldm.dti.packing import TO_FROBENIUS, frobenius, widen
from tensorldm.dti.signal import B0_MAX_S_PER_MM2, design_matrix
from tensorldm.shapes import BVals, Directions, Packed, Scalars

Projector = Float[Tensor, "6 6"]
"""Acts on packed tensors, ``packed @ projector.mT``; float64 on the CPU."""

_RANK_TOLERANCE = 1e-6
_ROUNDING = 8
"""Deviations from a sphere below this many units of rounding are no anisotropy."""


def null_space_projector(bvals: BVals, directions: Directions) -> Projector:
    """The nearest tensor (in the Frobenius norm) that no weighted volume sees: A with gᵀAg = 0 for all g."""
    basis = _null_space(bvals, directions)
    return _in_packed_form(basis @ basis.mT)


def unmeasured_anisotropy(packed: Packed, bvals: BVals, directions: Directions) -> Packed:
    """The traceless part of D that the data leave open: D less the least anisotropic tensor with the same signals.

    Where directions are not perpendicular the null space is not traceless: its patterns then change MD as well. What
    matters is the anisotropy they bring, so D's traceless part is projected onto theirs. An isotropic tensor has
    nothing unmeasured, whatever the directions; on perpendicular ones this is ``null_space_projector`` itself.
    """
    return _apply(_anisotropy_projector(bvals, directions), packed)


def prior_share(packed: Packed, bvals: BVals, directions: Directions) -> Scalars:
    """Norm of the unmeasured anisotropy over that of the whole: 0 from the data alone, 1 from elsewhere alone.

    The squares of the measured and the unmeasured share add up to 1. An isotropic tensor has no anisotropy to share
    out: 0.
    """
    whole = frobenius(_apply(_traceless(), packed))
    unmeasured = frobenius(unmeasured_anisotropy(packed, bvals, directions))
    resolved = whole > _ROUNDING * torch.finfo(whole.dtype).eps * frobenius(widen(packed))
    return torch.where(resolved, unmeasured / torch.where(resolved, whole, 1), 0).clamp(0, 1)


def _null_space(bvals: Tensor, directions: Tensor) -> Float[Tensor, "6 k"]:
    """An orthonormal basis in Frobenius coordinates.

    Volumes of a lower b-value change less with D, and count for less: ln S, not the ADC, has about equal noise.
    """
    bvals, directions = bvals.double().cpu(), directions.double().cpu()
    weighted = bvals > B0_MAX_S_PER_MM2
    if not weighted.any():
        return torch.eye(6, dtype=torch.float64)
    relative = bvals[weighted] / bvals.max()
    unit = torch.nn.functional.normalize(directions[weighted], dim=-1)
    rows = -design_matrix(relative, unit)[:, :6] / _frobenius_scale()
    _, sizes, right = torch.linalg.svd(rows / len(rows) ** 0.5, full_matrices=True)
    contrast = torch.nn.functional.pad(sizes, (0, 6 - len(sizes)))
    unseen: Tensor = right[contrast < SMALLEST_CONTRAST]
    return unseen.mT


def _anisotropy_projector(bvals: Tensor, directions: Tensor) -> Projector:
    patterns = _traceless() @ _null_space(bvals, directions)
    left, sizes, _ = torch.linalg.svd(patterns, full_matrices=False)
    basis = left[:, sizes > _RANK_TOLERANCE]
    return _in_packed_form(basis @ basis.mT)


def _traceless() -> Projector:
    """D − tr(D)/3·I; the same matrix in packed and in Frobenius coordinates."""
    trace = torch.tensor([1, 1, 1, 0, 0, 0], dtype=torch.float64)
    return torch.eye(6, dtype=torch.float64) - torch.outer(trace, trace) / 3


def _frobenius_scale() -> Float[Tensor, " 6"]:
    return torch.tensor(TO_FROBENIUS, dtype=torch.float64)


def _in_packed_form(projector: Tensor) -> Projector:
    scale = _frobenius_scale()
    return projector * scale / scale[:, None]


def _apply(projector: Projector, packed: Tensor) -> Tensor:
    packed = widen(packed)
    with torch.autocast(packed.device.type, enabled=False):  # bfloat16 would cost three digits
        return torch.matmul(packed, projector.mT.to(packed))
