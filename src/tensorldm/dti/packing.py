"""Six numbers for a symmetric 3×3 matrix: packing, change of axes, and the norm.

Work on voxel lists is done component by component (structure of arrays), which is many times faster than on
3×3 matrices. Axes: i j matrix; the last axis of a packed tensor is xx yy zz xy xz yz.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.components import COLUMNS, ROWS
from tensorldm.shapes import Packed, Scalars, Tensors

Matrices = Float[Tensor, "*#voxels 3 3"]
"""One 3×3 matrix for every voxel, or one for all."""

_INDEX = ((0, 3, 4), (3, 1, 5), (4, 5, 2))
"""Component d of matrix entry i, j."""


def pack(tensors: Tensors) -> Packed:
    """Keep the upper triangle; the lower one is taken to be the same."""
    return tensors[..., list(ROWS), list(COLUMNS)]


def unpack(packed: Packed) -> Tensors:
    """The full symmetric matrix."""
    return packed[..., torch.tensor(_INDEX, device=packed.device)]


def congruence(packed: Packed, matrix: Matrices) -> Packed:
    """M D Mᵀ for any matrix M, one for all voxels or one per voxel; M follows D's dtype and device."""
    component = components(packed)
    m = [row.unbind(-1) for row in matrix.to(packed).unbind(-2)]
    d = [[component[index] for index in row] for row in _INDEX]
    # First M D, then only the six entries that are kept.
    half = [[_dot(m[i], d[k]) for k in range(3)] for i in range(3)]
    return torch.stack([_dot(half[i], m[j]) for i, j in zip(ROWS, COLUMNS, strict=True)]).movedim(0, -1)


def rotate(packed: Packed, rotation: Matrices) -> Packed:
    """R D Rᵀ: the tensor carried along by a rotation or reflection R (v1 becomes R v1)."""
    return congruence(packed, rotation)


TO_FROBENIUS = (1.0, 1.0, 1.0, 2**0.5, 2**0.5, 2**0.5)
"""Packed components times these have the Frobenius norm as their ordinary length."""
MIRROR_SIGNS = (1.0, 1.0, 1.0, -1.0, -1.0, 1.0)
"""A left-right mirror turns the sign of the two components that hold x once."""


def frobenius(packed: Packed) -> Scalars:
    """Frobenius norm of the matrix: off-diagonals count twice. Its gradient at zero is zero."""
    xx, yy, zz, xy, xz, yz = components(packed)
    return safe_sqrt(xx * xx + yy * yy + zz * zz + 2 * (xy * xy + xz * xz + yz * yz))


def safe_sqrt(x: Scalars) -> Scalars:
    """√x for x ≥ 0, with gradient 0 instead of infinity at 0."""
    return x.clamp(min=torch.finfo(x.dtype).tiny).sqrt() * (x > 0)


def widen(packed: Packed) -> Packed:
    """float16 and bfloat16 become float32, as under autocast: three digits are not enough for eigenvalues."""
    return packed.float() if packed.dtype in (torch.float16, torch.bfloat16) else packed


def components(packed: Packed) -> tuple[Tensor, ...]:
    """The six components, each contiguous over the voxels; free of charge where they already are."""
    return packed.movedim(-1, 0).contiguous().unbind(0)


def _dot(a: Sequence[Tensor], b: Sequence[Tensor]) -> Tensor:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
