"""From geometry and fibres to what a scanner sees: compartments with diffusivities, signal fractions and b=0 signal.

Compartments: three fibre populations, grey matter (cortex along its columns, nuclei, and the isotropic part of
white matter), cerebrospinal fluid. Axes: n voxel, k compartment (5), m population (3).
"""

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.cohort.cylinders import axial_and_radial, cylinder
from tensorldm.cohort.procedural.distance import Points
from tensorldm.cohort.procedural.fibres import Populations
from tensorldm.cohort.procedural.parameters import HeadShape
from tensorldm.cohort.procedural.texture import Texture
from tensorldm.cohort.procedural.tissue import TissueMap

BACKGROUND_RADIAL_MM2_PER_S: Final = 0.55e-3
"""Fibres outside the named bundles are less aligned within a voxel: about FA 0.45 instead of 0.75."""
BACKGROUND_AXIAL_MM2_PER_S: Final = 1.30e-3
CORTEX_FA: Final = 0.15
NUCLEI_FA: Final = 0.18
NUCLEI_S0: Final = 1.05
"""Deep grey holds iron: darker than cortex on a T2-weighted image."""


@dataclass(frozen=True)
class Compartments:
    """Arrays of an ``Anatomy`` as a list of voxels."""

    tensors: Float[Tensor, "n k 6"]
    fractions: Float[Tensor, "n k"]
    s0: Float[Tensor, " n"]
    tissue: Float[Tensor, "n 3"]


def compose(
    shape: HeadShape,
    tissues: TissueMap,
    *,
    populations: Populations,
    coherence: Float[Tensor, " n"],
    columns: Points,
    texture: Texture,
) -> Compartments:
    """Fill every voxel; ``coherence`` is 1 in the middle of a bundle and 0 where only background fibres run."""
    axial = torch.lerp(
        _full(coherence, BACKGROUND_AXIAL_MM2_PER_S), _full(coherence, shape.axial_diffusivity), coherence
    )
    radial = torch.lerp(
        _full(coherence, BACKGROUND_RADIAL_MM2_PER_S), _full(coherence, shape.radial_diffusivity), coherence
    )
    fibre = cylinder(
        populations.directions, (axial * texture.axial)[:, None], radial=(radial * texture.radial)[:, None]
    )
    grey = tissues.cortex + tissues.nuclei
    nuclear = tissues.nuclei / grey.clamp_min(1e-3)
    fa = torch.lerp(_full(grey, CORTEX_FA), _full(grey, NUCLEI_FA), nuclear)
    grey_axial, grey_radial = axial_and_radial(fa, shape.grey_diffusivity * texture.grey)
    grey_tensor = cylinder(columns, grey_axial, radial=grey_radial)
    fluid_tensor = cylinder(columns, _full(grey, shape.csf_diffusivity), radial=_full(grey, shape.csf_diffusivity))

    isotropic = (texture.isotropic * torch.lerp(_full(grey, 0.22), _full(grey, 0.07), coherence)).clamp(0, 0.5)
    white_share = tissues.white * (1 - isotropic)
    volumes = torch.cat(
        [white_share[:, None] * populations.weights, (grey + tissues.white * isotropic)[:, None], tissues.csf[:, None]],
        dim=1,
    )
    grey_s0 = torch.lerp(_full(grey, shape.grey_s0), _full(grey, NUCLEI_S0), nuclear)
    # The isotropic part of white matter has white matter's own brightness.
    mixed_s0 = (grey * grey_s0 + tissues.white * isotropic) / (grey + tissues.white * isotropic).clamp_min(1e-6)
    brightness = torch.cat(
        [torch.ones_like(populations.weights), mixed_s0[:, None], _full(grey, shape.csf_s0)[:, None]], dim=1
    )
    signal = volumes * brightness
    total = signal.sum(dim=1)
    return Compartments(
        tensors=torch.cat([fibre, grey_tensor[:, None], fluid_tensor[:, None]], dim=1),
        fractions=signal / total[:, None],
        s0=total * texture.s0,
        tissue=torch.stack([tissues.csf, grey, tissues.white], dim=1),
    )


def _full(like: Tensor, value: float) -> Tensor:
    return torch.full_like(like, value)
