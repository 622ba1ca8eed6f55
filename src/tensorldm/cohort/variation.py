"""What differs between heads of one shape: tissue diffusivity and anisotropy, ventricles, b=0 contrast, receive field.

A compartment is free water as far as its own mean diffusivity says so; the rest of a voxel is grey or white matter
as its tissue fractions say. Axes: k compartment, d tensor component (6), v voxel of the brain, x y z space.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.anatomy import TISSUES, Anatomy
from tensorldm.cohort.axes import along_axes, gaussian_matrices, interpolating_matrices
from tensorldm.cohort.draws import smooth_field, uniform
from tensorldm.cohort.settings import VariationSettings
from tensorldm.cohort.warp import spread, velocity_grid
from tensorldm.dti.eigen import eigenvalues

CSF, GREY, WHITE = (TISSUES.index(name) for name in ("csf", "grey", "white"))
WATER_FROM_MM2_PER_S, WATER_TO_MM2_PER_S = 1.6e-3, 2.4e-3
"""Mean diffusivity between tissue (0.6 to 1.2e-3) and free water (3e-3): a compartment is water from none to all."""
SMALLEST_EIGENVALUE_MM2_PER_S = 5e-5
"""Raising the anisotropy stops here; axons' radial diffusivity lies well above."""
TEXTURE_MM = 4.0
"""Detail of tissue texture: two voxels."""
FLATTEST_SLOPE_PER_MM = 1e-3
"""Below this steepest slope of the smoothed CSF there are no ventricles to speak of, and little is moved."""
DEEP_FWHM_MM, DEEP_COVER = 40.0, 0.85
"""CSF is inner (ventricles) where a Gaussian this wide holds this share of the brain that it holds at the deepest
point; sulci hold about half."""
WALL_FWHM_MM = 12.0


def vary_tissue(anatomy: Anatomy, settings: VariationSettings, *, generator: Generator) -> Anatomy:
    """Diffusivity and anisotropy scaled, with voxel-scale texture; tensors stay positive definite."""
    factors = [
        uniform(generator, bounds)
        for bounds in (settings.csf_diffusivity, settings.grey_diffusivity, settings.white_diffusivity)
    ]
    anisotropy = uniform(generator, settings.anisotropy)
    mask = anatomy.mask
    texture = _field(anatomy, 2, TEXTURE_MM, generator)[:, mask].clamp(-3, 3)
    tensors = anatomy.tensors[..., mask]
    water, tissue_factor = water_share(tensors), _tissue_factor(anatomy.tissue[:, mask], factors)
    rough = 1 + settings.diffusivity_texture * texture[0]
    diffusivity = water * factors[CSF] + (1 - water) * tissue_factor * rough
    stretch = anisotropy * (1 + settings.anisotropy_texture * texture[1])
    tensors = scale_anisotropy(tensors, water + (1 - water) * stretch)
    return replace(anatomy, tensors=spread(tensors * diffusivity[:, None], mask))


def vary_signal(anatomy: Anatomy, settings: VariationSettings, *, generator: Generator) -> Anatomy:
    """b=0 contrast between tissues, and a smooth receive field; both act on all volumes alike."""
    grey, csf = uniform(generator, settings.grey_contrast), uniform(generator, settings.csf_contrast)
    contrast = 1 + (grey - 1) * anatomy.tissue[GREY] + (csf - 1) * anatomy.tissue[CSF]
    field = settings.bias * _field(anatomy, 1, settings.bias_spacing_mm, generator)[0]
    return replace(anatomy, s0=anatomy.s0 * contrast * field.exp())


def scale_anisotropy(tensors: Float[Tensor, "k 6 v"], stretch: Float[Tensor, "k v"]) -> Float[Tensor, "k 6 v"]:
    """Scale each tensor's deviation from its mean diffusivity, as far as its smallest eigenvalue allows."""
    mean = tensors[:, :3].mean(dim=1)
    smallest = eigenvalues(tensors.movedim(1, -1))[..., 2]
    room = (mean - SMALLEST_EIGENVALUE_MM2_PER_S).clamp(min=0) / (mean - smallest).clamp(min=1e-9)
    stretch = torch.where(stretch > 1, torch.minimum(stretch, room.clamp(min=1)), stretch)[:, None]
    centre = torch.zeros_like(tensors)
    centre[:, :3] = mean[:, None]
    return centre + stretch * (tensors - centre)


def ventricle_velocity(
    anatomy: Anatomy, settings: VariationSettings, *, generator: Generator
) -> Float[Tensor, "3 a b c"]:
    """A velocity field (old head, see `deformation`) that moves the walls of the inner CSF spaces outwards.

    It points up the slope of the smoothed inner CSF: voxels outside the wall then look inside it.
    """
    amount = uniform(generator, settings.ventricles_mm)
    shape, voxel_size = velocity_grid(anatomy)
    x, y, z = anatomy.s0.shape
    device = anatomy.s0.device
    brain_and_csf = torch.stack([anatomy.mask.to(anatomy.s0.dtype), anatomy.tissue[CSF]])
    coarser = interpolating_matrices((x, y, z), anatomy.voxel_size, shape=shape, voxel_size=voxel_size, device=device)
    coarse = along_axes(brain_and_csf, coarser)
    deep = along_axes(coarse[:1], gaussian_matrices(shape, voxel_size, fwhm=DEEP_FWHM_MM, device=device))
    inner = coarse[1:] * (deep > DEEP_COVER * deep.max())
    smooth = along_axes(inner, gaussian_matrices(shape, voxel_size, fwhm=WALL_FWHM_MM, device=device))[0]
    slope: Tensor = torch.stack(torch.gradient(smooth, spacing=list(voxel_size), dim=(0, 1, 2)))
    steepest = slope.norm(dim=0).max()
    velocity: Tensor = slope * (amount / steepest.clamp(min=FLATTEST_SLOPE_PER_MM))
    return velocity


def water_share(tensors: Float[Tensor, "k 6 v"]) -> Float[Tensor, "k v"]:
    """How far each compartment is free water, 0 to 1."""
    mean = tensors[:, :3].mean(dim=1)
    return ((mean - WATER_FROM_MM2_PER_S) / (WATER_TO_MM2_PER_S - WATER_FROM_MM2_PER_S)).clamp(0, 1)


def _tissue_factor(tissue: Float[Tensor, "3 v"], factors: list[float]) -> Float[Tensor, " v"]:
    share = tissue[WHITE] / (tissue[GREY] + tissue[WHITE]).clamp(min=1e-6)
    return factors[GREY] + (factors[WHITE] - factors[GREY]) * share


def _field(anatomy: Anatomy, channels: int, spacing_mm: float, generator: Generator) -> Float[Tensor, "c x y z"]:
    x, y, z = anatomy.s0.shape
    return smooth_field(
        (x, y, z),
        anatomy.voxel_size,
        spacing_mm=spacing_mm,
        channels=channels,
        generator=generator,
        device=anatomy.s0.device,
    )
