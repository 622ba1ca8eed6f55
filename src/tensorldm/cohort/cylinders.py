"""Axially symmetric tensors: what one fibre population or a cortical column looks like.

Axes: *voxels; six packed components in the package's order.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.cylinder import tensor_from_maps
from tensorldm.shapes import Packed, Scalars, Vectors


def cylinder(direction: Vectors, axial: Float[Tensor, "..."], *, radial: Float[Tensor, "..."]) -> Packed:
    """RD·I + (AD − RD) v vᵀ for unit directions; the diffusivities broadcast over the voxels."""
    shape = direction.shape[:-1]
    rd = radial.expand(shape)
    md = ((axial + 2 * radial) / 3).expand(shape)
    # Not colour but signed directions go in, and FA 1 says that they are meant.
    return tensor_from_maps(md, rd, torch.ones_like(rd), direction)


def axial_and_radial(fa: Scalars, md: Scalars) -> tuple[Scalars, Scalars]:
    """AD and RD of the axially symmetric tensor with this FA and MD.

    With AD = MD (1 + 2δ) and RD = MD (1 − δ), FA² = 3δ² / (1 + 2δ²), hence δ = FA / sqrt(3 − 2 FA²).
    """
    stretch = fa / (3 - 2 * fa.square()).sqrt()
    return md * (1 + 2 * stretch), md * (1 - stretch)
