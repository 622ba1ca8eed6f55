"""Tensor to orientation distribution, the same for every method [choice: tracking] [choice: odf-sharpening].

Water that diffuses freely with tensor D for a time goes in direction u with the density (uᵀD⁻¹u)^(−3/2), up to a
factor. That lobe is far wider than a bundle of fibres: at FA 0.5 it has fallen to a half only 40° off its axis. Taken
to the fourth power, in harmonics of order 8, it falls to a half at 19° (15° at FA 0.8): about the width of what
spherical deconvolution gives.
Its height along v1 is set to the FA, so that tckgen's cutoff, which is an amplitude, is an FA.

Every step commutes with rotations and mirrors, so the peak lies on v1 in every frame.
"""

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.eigen import compose, eigen
from tensorldm.dti.maps import fractional_anisotropy
from tensorldm.dti.signal import design_matrix
from tensorldm.shapes import Packed
from tensorldm.tracts.harmonics import analysis_matrix, basis, count, quadrature

SHARPENING: Final = 4.0
"""The power that the diffusion ODF is raised to."""
LEAST_SHARE: Final = 0.1
"""Eigenvalues below this share of the largest count as it: a sharper lobe than order 8 can hold would only ring."""
CHUNK_VOXELS: Final = 1 << 14
"""576 directions of so many voxels fill 38 MB."""

Coefficients = Float[Tensor, "voxels k"]


def tensor_odf(packed: Float[Tensor, "voxels 6"]) -> Coefficients:
    """Coefficients of the sharpened ODF in the axes of the tensor; zero where there is no anisotropy or no tensor."""
    matrix = analysis_matrix(packed)
    parts = [_odf(part, matrix) for part in torch.split(packed, CHUNK_VOXELS)]
    return torch.cat(parts) if parts else packed.new_zeros(0, count())


def principal_peak(packed: Packed) -> Float[Tensor, "*voxels 3"]:
    """v1 with the FA as its length: what tckgen's FACT follows, with the same cutoff."""
    return eigen(packed)[1][..., 0] * fractional_anisotropy(packed).unsqueeze(-1)


def _odf(packed: Float[Tensor, "voxels 6"], matrix: Float[Tensor, "n k"]) -> Coefficients:
    values, vectors = eigen(packed)
    largest = values[:, :1]
    # Relative to the largest eigenvalue: the shape of the lobe has no unit.
    shape = (values / largest.clamp(min=torch.finfo(values.dtype).tiny)).clamp(min=LEAST_SHARE)
    spread = compose(1 / shape, vectors) @ _squares(packed).T
    coefficients = spread.pow(-1.5 * SHARPENING) @ matrix
    at_peak = torch.from_numpy(basis(vectors[..., 0].double().numpy())).to(packed)
    height = (coefficients * at_peak).sum(dim=-1)
    anisotropy = torch.where(largest[:, 0] > 0, fractional_anisotropy(packed), 0)
    return coefficients * (anisotropy / height)[:, None]


def _squares(like: Tensor) -> Float[Tensor, "n 6"]:
    """uᵀMu is linear in the six components of M: what each is multiplied with, by direction."""
    directions = torch.from_numpy(quadrature()[0])
    minus_one = -torch.ones(len(directions), dtype=directions.dtype)  # b = −1 leaves the bare square
    return design_matrix(minus_one, directions)[:, :6].to(like)
