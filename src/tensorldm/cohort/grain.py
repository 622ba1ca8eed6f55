"""Texture from voxel to voxel: tensors strained and turned a little, each voxel its own way [choice: voxel-texture].

D becomes M D Mᵀ with M = I + E: the trace of E changes the mean diffusivity, its symmetric part the shape, its
antisymmetric part the direction, and D stays positive definite whatever E is. Fluid has none:
a compartment takes part as far as it is not water.
E is drawn where the stream runs, as noise is. Axes: k compartment, v voxel of the brain, x y z space.
"""

from dataclasses import replace
from functools import lru_cache
from math import radians, sqrt

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.axes import Shape, Size, along_axes, gaussian, gaussian_matrices
from tensorldm.cohort.clinical import DetailSettings
from tensorldm.cohort.draws import uniform, whole
from tensorldm.cohort.variation import water_share
from tensorldm.cohort.warp import spread
from tensorldm.components import COLUMNS, ROWS
from tensorldm.dti.packing import congruence

IDENTITY = torch.eye(3)
FURTHEST = 3.0
"""Standard deviations at which the texture ends."""


def add_grain(
    anatomy: Anatomy, settings: DetailSettings, *, generator: Generator, field_generator: Generator
) -> Anatomy:
    """The anatomy with texture; ``generator`` draws its strength, ``field_generator`` (anatomy's device) the field."""
    diffusivity, shape = uniform(generator, settings.diffusivity), uniform(generator, settings.shape)
    turn = radians(uniform(generator, settings.turn_degrees))
    fwhm = settings.texture_mm[whole(generator, (0, len(settings.texture_mm) - 1))]
    if not settings.has_texture:
        return anatomy
    strengths = torch.tensor([diffusivity] + 6 * [shape] + 3 * [turn]).to(anatomy.s0)
    basis = strengths[:, None, None] * strain_basis(anatomy.s0.device)
    fields = white_field(anatomy, 10, fwhm_mm=fwhm, generator=field_generator)
    strain = torch.einsum("cv,cij->ijv", fields, basis).movedim(-1, 0)
    mask = anatomy.mask
    tensors = anatomy.tensors[..., mask]
    solid = 1 - water_share(tensors)
    strained = congruence(tensors.movedim(1, -1), (IDENTITY.to(strain) + strain).expand(len(tensors), -1, 3, 3))
    grained = torch.lerp(tensors, strained.movedim(-1, 1), solid[:, None])
    return replace(anatomy, tensors=spread(grained, mask))


def white_field(anatomy: Anatomy, channels: int, *, fwhm_mm: float, generator: Generator) -> Float[Tensor, "c v"]:
    """Normal fields of unit variance at the brain's voxels, correlated over a width."""
    x, y, z = anatomy.s0.shape
    fields = torch.empty(channels, x, y, z, device=anatomy.s0.device).normal_(generator=generator)
    if fwhm_mm > 0:
        blur = gaussian_matrices((x, y, z), anatomy.voxel_size, fwhm=fwhm_mm, device=fields.device)
        fields = along_axes(fields, blur) * _regain((x, y, z), anatomy.voxel_size, fwhm_mm)
    return fields[:, anatomy.mask].clamp(-FURTHEST, FURTHEST)


@lru_cache(maxsize=64)
def _regain(shape: Shape, voxel_size: Size, fwhm_mm: float) -> float:
    """What a blurred field must be multiplied by to have unit variance again."""
    kept = 1.0
    for size, voxel in zip(shape, voxel_size, strict=True):
        kept *= float(gaussian(size, voxel, fwhm=fwhm_mm)[size // 2].square().sum())
    return 1 / sqrt(kept)


@lru_cache(maxsize=4)
def strain_basis(device: torch.device) -> Float[Tensor, "10 3 3"]:
    """What each field does to E: one changes the level, six the shape, three turn. Half, because E acts twice."""
    basis = torch.zeros(10, 3, 3)
    basis[0] = torch.eye(3) / 2
    for index, (i, j) in enumerate(zip(ROWS, COLUMNS, strict=True)):
        basis[1 + index, i, j] = basis[1 + index, j, i] = 0.5
    for axis in range(3):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        basis[7 + axis, j, i], basis[7 + axis, i, j] = 1.0, -1.0
    return basis.to(device)
