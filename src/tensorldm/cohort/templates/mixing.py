"""Fibre directions with weights as compartments: fibres, an isotropic part, and fluid.

One knob per voxel turns from no fibres to a single one: up to 1 it is the fibres' share of the solid part, from 1 to
2 the strongest fibre takes over from those that cross it. Axes: v voxel, m fibre, k = m + 2 compartment.
"""

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.cohort.cylinders import cylinder
from tensorldm.cohort.templates.tissue import CSF_MM2_PER_S, SOLID_MM2_PER_S
from tensorldm.dti.maps import fractional_anisotropy

FIBRE_AXIAL_MM2_PER_S: Final = 1.7e-3
FIBRE_RADIAL_MM2_PER_S: Final = 0.25e-3
BISECTIONS: Final = 14


@dataclass(frozen=True)
class Mixture:
    """What may be mixed in every voxel, and in which proportion the fibres are to each other."""

    tensors: Float[Tensor, "v k 6"]
    weights: Float[Tensor, "v m"]
    """Sum to 1."""
    fluid: Float[Tensor, " v"]
    """Signal fraction."""

    def fractions(self, knob: Float[Tensor, " v"]) -> Float[Tensor, "v k"]:
        """Signal fractions of all compartments."""
        share, narrowing = knob.clamp(max=1)[:, None], (knob - 1).clamp(min=0)[:, None]
        strongest = torch.nn.functional.one_hot(self.weights.argmax(dim=-1), self.weights.shape[1])
        fibres = share * torch.lerp(self.weights, strongest.to(self.weights.dtype), narrowing)
        solid = torch.cat([fibres, 1 - share], dim=1)
        return torch.cat([(1 - self.fluid)[:, None] * solid, self.fluid[:, None]], dim=1)

    def anisotropy(self, knob: Float[Tensor, " v"]) -> Float[Tensor, " v"]:
        """FA of the mean tensor."""
        return fractional_anisotropy((self.fractions(knob)[..., None] * self.tensors).sum(dim=1))

    def knob_for(self, fa: Float[Tensor, " v"]) -> Float[Tensor, " v"]:
        """The knob at which the mean tensor has this FA, as far as a single fibre can; by bisection."""
        low, high = torch.zeros_like(fa), torch.full_like(fa, 2.0)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            over = self.anisotropy(middle) > fa
            low, high = torch.where(over, low, middle), torch.where(over, middle, high)
        return (low + high) / 2


def mixture(
    directions: Float[Tensor, "v m 3"], weights: Float[Tensor, "v m"], *, fluid: Float[Tensor, " v"]
) -> Mixture:
    """Compartments along unit directions; where a fibre is missing its direction is zero and so is its weight."""
    known = torch.where(
        directions.square().sum(dim=-1, keepdim=True) > 0, directions, directions.new_tensor([0, 0, 1.0])
    )
    any_fibre = weights.sum(dim=-1, keepdim=True) > 0
    proportions = torch.where(any_fibre, weights, torch.ones_like(weights))
    solid, water = (fluid.new_tensor(value) for value in (SOLID_MM2_PER_S, CSF_MM2_PER_S))
    axial, radial = (fluid.new_tensor(value) for value in (FIBRE_AXIAL_MM2_PER_S, FIBRE_RADIAL_MM2_PER_S))
    anywhere = known[:, :1]
    tensors = [
        cylinder(known, axial, radial=radial),
        cylinder(anywhere, solid, radial=solid),
        cylinder(anywhere, water, radial=water),
    ]
    return Mixture(
        tensors=torch.cat(tensors, dim=1), weights=proportions / proportions.sum(dim=-1, keepdim=True), fluid=fluid
    )
