"""Texture from voxel to voxel: tensors strained and turned a little, each voxel its own way.

D becomes M D Mᵀ with M = I + E: the trace of E changes the mean diffusivity, its symmetric part the shape, its
antisymmetric part the direction, and D stays positive definite whatever E is. Fluid has no texture.
E is drawn where the stream runs, as noise is. Axes: k compartment, v voxel of the brain, x y z space.
"""

from dataclasses import replace
from math import radians

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.axes import along_axes, gaussian_matrices
from tensorldm.cohort.clinical import DetailSettings
from tensorldm.cohort.draws import uniform, whole
from tensorldm.cohort.variation import water_share
from tensorldm.cohort.warp import spread
from tensorldm.components import COLUMNS, ROWS
from tensorldm.dti.packing import congruence

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
    fields = white_field(anatomy, 10, fwhm_mm=fwhm, generator=field_generator)
    strain = strains(fields[0], fields[1:7], turns=fields[7:], diffusivity=diffusivity, shape=shape, turn=turn)
    mask = anatomy.mask
    tensors = anatomy.tensors[..., mask]
    solid = (1 - water_share(tensors))[..., None, None]
    matrices = torch.eye(3).to(strain) + solid * strain
    return replace(anatomy, tensors=spread(congruence(tensors.movedim(1, -1), matrices).movedim(-1, 1), mask))


def white_field(anatomy: Anatomy, channels: int, *, fwhm_mm: float, generator: Generator) -> Float[Tensor, "c v"]:
    """Normal fields of unit variance at the brain's voxels, correlated over a width."""
    x, y, z = anatomy.s0.shape
    fields = torch.empty(channels, x, y, z, device=anatomy.s0.device).normal_(generator=generator)
    if fwhm_mm > 0:
        blur = gaussian_matrices((x, y, z), anatomy.voxel_size, fwhm=fwhm_mm, device=fields.device)
        kept = 1.0
        for matrix in blur:
            kept *= float(matrix[len(matrix) // 2].square().sum())
        fields = along_axes(fields, blur) / kept**0.5
    return fields[:, anatomy.mask].clamp(-FURTHEST, FURTHEST)


def strains(
    level: Float[Tensor, " v"],
    shapes: Float[Tensor, "6 v"],
    *,
    turns: Float[Tensor, "3 v"],
    diffusivity: float,
    shape: float,
    turn: float,
) -> Float[Tensor, "v 3 3"]:
    """E of every voxel from ten fields; half of a diffusivity's relative change, because E acts twice."""
    strain = level.new_zeros(3, 3, len(level))
    for value, i, j in zip(shapes, ROWS, COLUMNS, strict=True):
        strain[i, j] += shape / 2 * value
        if i != j:
            strain[j, i] += shape / 2 * value
    for axis, value in enumerate(turns):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        strain[j, i] += turn * value
        strain[i, j] -= turn * value
    for axis in range(3):
        strain[axis, axis] += diffusivity / 2 * level
    return strain.movedim(-1, 0)
