"""Gradient coils are not perfectly linear: far from the isocentre a voxel sees (I + L) g where g was asked for.

The field L grows with the square of the distance from the centre of the grid, as the leading error of a real coil
does. It is given as HCP's `grad_dev` files give it: nine numbers per voxel, L by columns (`dti.fit` says more).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.components import COLUMNS, ROWS

REFERENCE_MM = 80.0
"""Where the strength is stated: about the brain's edge."""


@dataclass(frozen=True)
class GradientField:
    """L_m(p) = Σ c[m, ab] p_a p_b / R², nine entries by columns, six products of the position."""

    coefficients: Float[Tensor, "9 6"]

    def at(self, positions: Float[Tensor, "3 v"]) -> Float[Tensor, "v 9"]:
        """The field at positions in mm from the centre."""
        scaled = positions / REFERENCE_MM
        products = scaled[list(ROWS)] * scaled[list(COLUMNS)]
        return (self.coefficients.to(positions) @ products).T


def draw_gradient_field(strength: float, generator: Generator) -> GradientField:
    """A field whose entries differ by about ``strength`` between heads at 80 mm from the centre."""
    return GradientField(strength * torch.randn(9, 6, generator=generator) / 2)
