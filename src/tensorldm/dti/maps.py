"""Scalar and direction maps of the tensor: MD, AD, RD, FA, mode, v1 and colour FA.

Noise gives a least-squares tensor negative eigenvalues, which no diffusion has: every scalar map here counts a
negative eigenvalue as 0 [choice: negative-eigenvalues]. Rates of such voxels are measured on the tensors themselves.
"""

import math

import torch

from tensorldm.dti.eigen import eigen, eigenvalues
from tensorldm.dti.packing import safe_sqrt
from tensorldm.shapes import Eigenvalues, Packed, Scalars, Vectors


def mean_diffusivity(packed: Packed) -> Scalars:
    """MD: mean of the three eigenvalues."""
    return _physical(packed).mean(dim=-1)


def axial_diffusivity(packed: Packed) -> Scalars:
    """AD: the largest eigenvalue."""
    return _physical(packed)[..., 0]


def radial_diffusivity(packed: Packed) -> Scalars:
    """RD: mean of the two smaller eigenvalues."""
    return _physical(packed)[..., 1:].mean(dim=-1)


def fractional_anisotropy(packed: Packed) -> Scalars:
    """FA: 0 for a sphere (and for the zero tensor), 1 for a line. The gradient at FA = 0 is set to 0."""
    return _anisotropy(_physical(packed))


def mode(packed: Packed) -> Scalars:
    """Mode of anisotropy: 1 linear, 0 orthotropic, −1 planar; 0 where there is no anisotropy to speak of."""
    values = _physical(packed)
    x, y, z = (values - values.mean(dim=-1, keepdim=True)).unbind(-1)
    norm = (x * x + y * y + z * z).sqrt()
    # Below rounding error the deviation from a sphere has no shape.
    resolved = norm > 4 * torch.finfo(values.dtype).eps * values[..., 0]
    norm = torch.where(resolved, norm, 1)
    shape = 3 * math.sqrt(6) * (x / norm) * (y / norm) * (z / norm)
    return torch.where(resolved, shape, 0).clamp(-1, 1)


def principal_direction(packed: Packed) -> Vectors:
    """v1, the unit eigenvector of the largest eigenvalue; v1 and −v1 mean the same, and no sign is preferred."""
    return eigen(packed)[1][..., 0]


def colour_fa(packed: Packed) -> Vectors:
    """FA·|v1|: red x, green y, blue z, without sign."""
    values, vectors = eigen(packed)
    return _anisotropy(values.clamp(min=0)).unsqueeze(-1) * vectors[..., 0].abs()


def angle_degrees(v: Vectors, w: Vectors) -> Scalars:
    """Angle between two axes, 0 to 90 degrees: a direction and its negative are the same axis.

    From the cross product and the dot product together, so that small angles keep their digits; lengths do not matter.
    """
    (vx, vy, vz), (wx, wy, wz) = v.unbind(-1), w.unbind(-1)
    x, y, z = vy * wz - vz * wy, vz * wx - vx * wz, vx * wy - vy * wx
    return torch.rad2deg(torch.atan2(safe_sqrt(x * x + y * y + z * z), (vx * wx + vy * wy + vz * wz).abs()))


def _physical(packed: Packed) -> Eigenvalues:
    return eigenvalues(packed).clamp(min=0)


def _anisotropy(values: Eigenvalues) -> Scalars:
    a, b, c = values.unbind(-1)
    tiny = torch.finfo(values.dtype).tiny
    largest = a.clamp(min=tiny)  # relative to it, squares of small diffusivities cannot underflow
    a, b, c = a / largest, b / largest, c / largest
    spread = (a - b) ** 2 + (b - c) ** 2 + (a - c) ** 2
    size = (a * a + b * b + c * c).clamp(min=tiny)
    return safe_sqrt(spread / (2 * size)).clamp(max=1)
