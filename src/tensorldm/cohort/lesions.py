"""White-matter lesions: round, soft-edged spots of higher diffusivity, lower anisotropy and brighter b=0 signal.

They look like the hyperintensities of small-vessel disease and multiple sclerosis in a diffusion scan; they are
meant to keep a model from believing that all white matter is healthy, not to imitate any one disease.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.anatomy import TISSUES, Anatomy
from tensorldm.cohort.deformation import coordinates
from tensorldm.cohort.draws import uniform, whole
from tensorldm.cohort.settings import VariationSettings
from tensorldm.cohort.variation import scale_anisotropy
from tensorldm.cohort.warp import spread

WHITE = TISSUES.index("white")
RADIUS_MM = (2.0, 7.0)
DIFFUSIVITY_GAIN = (0.2, 0.9)
"""Mean diffusivity rises by this share at a lesion's centre."""
ANISOTROPY_LOSS = (0.2, 0.7)
SIGNAL_GAIN = (0.15, 0.6)
PURE_WHITE = 0.8


def add_lesions(anatomy: Anatomy, settings: VariationSettings, *, generator: Generator) -> Anatomy:
    """The anatomy with lesions in the share of subjects that the settings ask for; others are returned as they are."""
    has_lesions = uniform(generator, (0.0, 1.0)) < settings.lesion_probability
    if not has_lesions or settings.lesions == 0:
        return anatomy
    extent = lesion_extent(anatomy, whole(generator, (1, settings.lesions)), generator=generator)
    loss, gain = uniform(generator, ANISOTROPY_LOSS), uniform(generator, DIFFUSIVITY_GAIN)
    brighter = uniform(generator, SIGNAL_GAIN)
    mask = anatomy.mask
    inside = extent[mask]
    tensors = anatomy.tensors[..., mask]
    tensors = scale_anisotropy(tensors, (1 - loss * inside).expand(len(tensors), -1)) * (1 + gain * inside)
    return replace(anatomy, tensors=spread(tensors, mask), s0=anatomy.s0 * (1 + brighter * extent))


def lesion_extent(anatomy: Anatomy, count: int, *, generator: Generator) -> Float[Tensor, "x y z"]:
    """How far each voxel is lesioned, 0 to 1: stretched balls with soft edges around voxels of pure white matter."""
    white = anatomy.tissue[WHITE]
    candidates = torch.nonzero((white > PURE_WHITE) & anatomy.mask)
    extent = torch.zeros_like(white)
    if len(candidates) == 0:
        return extent
    x, y, z = white.shape
    positions = coordinates((x, y, z), anatomy.voxel_size, device=white.device)
    for _ in range(count):
        index = whole(generator, (0, len(candidates) - 1))
        centre = positions[(slice(None), *candidates[index])]
        radii = positions.new_tensor([uniform(generator, RADIUS_MM) for _ in range(3)])
        distance = ((positions - centre[:, None, None, None]) / radii[:, None, None, None]).norm(dim=0)
        extent = torch.maximum(extent, (2 * (1 - distance)).clamp(0, 1))
    return extent * white
