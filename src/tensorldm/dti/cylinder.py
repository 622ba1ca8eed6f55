"""A tensor from scalar maps under cylindrical symmetry [E13], for methods that predict maps only."""

import torch

from tensorldm.dti.packing import safe_sqrt
from tensorldm.shapes import Packed, Scalars, Vectors

SMALLEST_FA = 0.05
"""[E13] Below this the direction is not trusted and the tensor is RD·I."""
EPSILON = 1e-8
"""[E13] Added to the length of the colour vector, which is 0.05 at least where it is used."""


def tensor_from_maps(md: Scalars, rd: Scalars, fa: Scalars, colour_fa: Vectors) -> Packed:
    """D = RD·I + (AD − RD)·v1 v1ᵀ with AD = 3·MD − 2·RD, not below 0 [E13].

    v1 is the colour FA made a unit vector. Colour FA has lost the signs of v1, so this v1 always lies in the first
    octant: of four possible fibre axes the tensor has one, and its off-diagonals are all of one sign.
    """
    ad = (3 * md - 2 * rd).clamp(min=0)
    red, green, blue = colour_fa.unbind(-1)
    length = safe_sqrt(red * red + green * green + blue * blue) + EPSILON
    x, y, z = red / length, green / length, blue / length
    excess = torch.where(fa < SMALLEST_FA, 0, ad - rd)  # the same as v1 = 0
    return torch.stack(
        (
            rd + excess * x * x,
            rd + excess * y * y,
            rd + excess * z * z,
            excess * x * y,
            excess * x * z,
            excess * y * z,
        ),
        dim=-1,
    )
