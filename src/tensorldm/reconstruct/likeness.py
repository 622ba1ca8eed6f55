"""Which tissue a voxel looks like, from its own FA and MD alone, and a factor that follows it.

A reconstruction has no tissue map, so what an interval may depend on is what the samples show. Fluid diffuses freely,
white matter is anisotropic, grey matter is neither; between them the shares change evenly, so that no edge appears in
the maps where a threshold would be crossed.
"""

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

TISSUES: Final = ("csf", "grey", "white")
"""The order of every triple of factors."""
FLUID_MD_MM2_PER_S: Final = (1.2e-3, 2.2e-3)
"""[choice: tissue-likeness] None of a voxel is fluid up to the first, all of it from the second on."""
FIBRE_FA: Final = (0.15, 0.35)
"""[choice: tissue-likeness] Of what is not fluid, none is white matter up to the first, all from the second on."""

Triple = tuple[float, float, float]
"""One factor for each of ``TISSUES``."""


def tissue_likeness(fa: Float[Tensor, "*voxels"], md: Float[Tensor, "*voxels"]) -> Float[Tensor, "*voxels 3"]:
    """Shares of csf, grey and white, at least 0 and 1 together."""
    fluid = _ramp(md, FLUID_MD_MM2_PER_S)
    fibre = _ramp(fa, FIBRE_FA) * (1 - fluid)
    return torch.stack([fluid, 1 - fluid - fibre, fibre], dim=-1)


def factor_map(factors: Triple, fa: Float[Tensor, "*voxels"], md: Float[Tensor, "*voxels"]) -> Float[Tensor, "*voxels"]:
    """The factor of each voxel: the geometric mean of the tissues' factors, weighted by likeness."""
    logs = torch.tensor(factors, dtype=fa.dtype, device=fa.device).log()
    return (tissue_likeness(fa, md) @ logs).exp()


def _ramp(values: Tensor, ends: tuple[float, float]) -> Tensor:
    return ((values - ends[0]) / (ends[1] - ends[0])).clamp(0, 1)
