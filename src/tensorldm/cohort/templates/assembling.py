"""From lists of voxels to an ``Anatomy``: what all converters end with."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.cohort.anatomy import Anatomy, Bundle
from tensorldm.cohort.templates import tissue
from tensorldm.cohort.templates.mixing import Mixture
from tensorldm.cohort.templates.placing import Placement
from tensorldm.cohort.templates.request import Request
from tensorldm.cohort.templates.volumes import volume_of
from tensorldm.dti.maps import fractional_anisotropy


def from_tensors(
    request: Request, packed: Float[Tensor, "v 6"], *, b0: Float[Tensor, " v"] | None, placement: Placement
) -> Anatomy:
    """Two compartments: the tissue's tensor and fluid. Without a b=0 image its brightness follows from the tissue."""
    solid, fluid = tissue.split_fluid(tissue.physical(packed))
    water = torch.zeros_like(solid)
    water[:, :3] = tissue.CSF_MM2_PER_S
    return assemble(
        request,
        torch.stack([solid, water], dim=1),
        fractions=torch.stack([1 - fluid, fluid], dim=1),
        shares=tissue.tissue_of(fluid, fractional_anisotropy(solid)),
        b0=b0,
        placement=placement,
    )


def from_mixture(
    request: Request,
    mixture: Mixture,
    *,
    knob: Float[Tensor, " v"],
    placement: Placement,
    bundles: Mapping[str, Bundle],
) -> Anatomy:
    """Fibre populations, an isotropic part and fluid; white matter is what has fibres."""
    dry = replace(mixture, fluid=torch.zeros_like(mixture.fluid))
    return assemble(
        request,
        mixture.tensors,
        fractions=mixture.fractions(knob),
        shares=tissue.tissue_of(mixture.fluid, dry.anisotropy(knob)),
        b0=None,
        placement=placement,
        bundles=bundles,
    )


def assemble(
    request: Request,
    tensors: Float[Tensor, "v k 6"],
    *,
    fractions: Float[Tensor, "v k"],
    shares: Float[Tensor, "v 3"],
    b0: Float[Tensor, " v"] | None,
    placement: Placement,
    bundles: Mapping[str, Bundle] | None = None,
) -> Anatomy:
    """Lists of the mask's voxels as volumes on the anatomy's grid."""
    mask = torch.from_numpy(placement.mask)
    s0 = tissue.brightness_of(shares) if b0 is None else tissue.relative_s0(b0, shares)
    return Anatomy(
        name=request.name,
        source=request.person,
        tensors=volume_of(tensors, mask),
        fractions=volume_of(fractions, mask),
        s0=volume_of(s0, mask),
        tissue=volume_of(shares, mask),
        mask=mask,
        voxel_size=request.grid.voxel_size,
        bundles=bundles or {},
    )
