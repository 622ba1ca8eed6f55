"""What a voxel of a real anatomy is made of, as far as its tensor or its fibres tell.

Estimates, not segmentations: fluid from mean diffusivity, white matter from anisotropy. Crossing fibres of low
anisotropy count as grey. What is exact is that a voxel's mean tensor Σ f_k D_k is the measured one.
"""

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.eigen import compose, eigen, eigenvalues
from tensorldm.dti.maps import mean_diffusivity
from tensorldm.shapes import Packed, Scalars

CSF_MM2_PER_S: Final = 3.0e-3
TISSUE_MM2_PER_S: Final = 0.9e-3
"""Mean diffusivity above which a voxel is taken to hold fluid."""
LEAST_TISSUE_MM2_PER_S: Final = 0.15e-3
"""No eigenvalue of tissue is below this; what a noisy fit has below it is raised."""
LARGEST_MM2_PER_S: Final = 3.3e-3
WHITE_FA: Final = (0.18, 0.32)
"""Anisotropy of no and of nothing but white matter, linear between; noise gives grey matter up to 0.2."""
SOLID_MM2_PER_S: Final = 0.78e-3
"""Mean diffusivity of white and grey matter, where a template does not tell."""
BRIGHTNESS: Final = (3.0, 1.3, 1.0)
"""b=0 signal of csf, grey and white relative to white."""


def physical(packed: Packed) -> Packed:
    """Eigenvalues brought into the range of living tissue and water."""
    values, vectors = eigen(packed)
    return compose(values.clamp(LEAST_TISSUE_MM2_PER_S, LARGEST_MM2_PER_S), vectors)


def split_fluid(packed: Packed) -> tuple[Packed, Scalars]:
    """Fluid taken out of a physical tensor: what remains, and the fluid's signal fraction f; D = f D_csf + (1 − f) D'.

    The fraction follows from mean diffusivity and never takes so much that an eigenvalue of the rest falls below
    that of tissue.
    """
    excess = (mean_diffusivity(packed) - TISSUE_MM2_PER_S) / (CSF_MM2_PER_S - TISSUE_MM2_PER_S)
    smallest = eigenvalues(packed)[..., 2]
    most = (smallest - LEAST_TISSUE_MM2_PER_S) / (CSF_MM2_PER_S - LEAST_TISSUE_MM2_PER_S)
    fluid = torch.minimum(excess, most).clamp(0, 0.95)
    water = packed.new_tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]) * CSF_MM2_PER_S
    return (packed - fluid[..., None] * water) / (1 - fluid[..., None]), fluid


def tissue_of(fluid: Scalars, fa: Scalars) -> Float[Tensor, "*voxels 3"]:
    """Volume fractions of csf, grey and white from the fluid's signal fraction and the anisotropy of the rest."""
    low, high = WHITE_FA
    whiteness = ((fa - low) / (high - low)).clamp(0, 1)
    solid_brightness = torch.lerp(torch.full_like(fa, BRIGHTNESS[1]), torch.full_like(fa, BRIGHTNESS[2]), whiteness)
    wet = fluid / BRIGHTNESS[0]
    csf = wet / (wet + (1 - fluid) / solid_brightness)
    return torch.stack([csf, (1 - csf) * (1 - whiteness), (1 - csf) * whiteness], dim=-1)


def brightness_of(tissue: Float[Tensor, "*voxels 3"]) -> Scalars:
    """The b=0 signal that these tissues would have, where no b=0 image was given."""
    brightness: Scalars = (tissue * tissue.new_tensor(BRIGHTNESS)).sum(dim=-1)
    return brightness


def relative_s0(b0: Scalars, tissue: Float[Tensor, "*voxels 3"]) -> Scalars:
    """A b=0 image in units of its white matter."""
    white = b0[(tissue[..., 2] > 0.9) & (b0 > 0)]
    unit = white.median() if len(white) else b0.median()
    return (b0 / unit.clamp_min(1e-6)).clamp(0.1, 6.0)


def with_fluid(packed: Packed, fluid: Scalars) -> Packed:
    """Tensors of tissue with fluid added: f D_csf + (1 − f) D."""
    water = packed.new_tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]) * CSF_MM2_PER_S
    return torch.lerp(packed, water, fluid[..., None])
