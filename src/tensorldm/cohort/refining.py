"""An anatomy made ready for a stream, once: edges that a template's coarse voxels have softened, and its level.

Unsharp masking in the domain where it can do no harm: logarithms of tensors and of the b=0 signal, so that they stay
positive, and shares that are then brought back to sum to 1. Means are weighted by each compartment's signal, so that
nothing leaks in from where it is absent. Axes: k compartment, d tensor component (6), x y z space.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.cohort.anatomy import TISSUES, Anatomy
from tensorldm.cohort.axes import along_axes, gaussian_matrices
from tensorldm.cohort.clinical import DetailSettings
from tensorldm.cohort.variation import water_share
from tensorldm.cohort.warp import spread
from tensorldm.dti.logarithm import exp, log
from tensorldm.dti.maps import mean_diffusivity

WHITE = TISSUES.index("white")
MOSTLY_WHITE = 0.9
SINGLE_TENSOR = 2
"""Compartments of an anatomy that has one tensor for all of its tissue, and fluid. Several fibre populations change
places from voxel to voxel: a blur would mix one with another, so that only their shares are sharpened."""
FLOOR_MM2_PER_S = 5e-5
LARGEST_MM2_PER_S = 3.2e-3
LARGEST_STEP = 0.7
"""No logarithm of a tensor or signal moves by more: a factor of two. It keeps noise at the rim from running away."""
SMALLEST = 1e-4


def refine(anatomy: Anatomy, settings: DetailSettings) -> Anatomy:
    """The anatomy sharpened and brought to one level of diffusivity, as far as the settings ask for it."""
    if settings.sharpen > 0:
        anatomy = sharpen(anatomy, settings.sharpen, fwhm_mm=settings.sharpen_fwhm_mm)
    if settings.white_mm2_per_s > 0:
        anatomy = level(anatomy, settings.white_mm2_per_s)
    return anatomy


def level(anatomy: Anatomy, white_mm2_per_s: float) -> Anatomy:
    """Tissue scaled so that white matter has this median diffusivity: fits at a high b-value come out too low."""
    white = anatomy.mask & (anatomy.tissue[WHITE] > MOSTLY_WHITE)
    if not bool(white.any()):
        return anatomy
    found = mean_diffusivity(anatomy.components[0][:, white].T).median()
    tensors = anatomy.tensors[..., anatomy.mask]
    water = water_share(tensors)[:, None]
    scaled = tensors * (water + (1 - water) * white_mm2_per_s / found)
    return replace(anatomy, tensors=spread(scaled, anatomy.mask))


def sharpen(anatomy: Anatomy, amount: float, *, fwhm_mm: float) -> Anatomy:
    """Add ``amount`` times what a Gaussian of this width takes away."""
    inside = anatomy.mask.to(anatomy.s0.dtype)

    def contrast(values: Float[Tensor, "c x y z"], weights: Float[Tensor, "#c x y z"]) -> Float[Tensor, "c v"]:
        x, y, z = inside.shape
        blur = gaussian_matrices((x, y, z), anatomy.voxel_size, fwhm=fwhm_mm, device=values.device)
        around = along_axes(values * weights, blur) / along_axes(weights, blur).clamp(min=SMALLEST)
        return amount * (values - around)[:, anatomy.mask]

    mask = anatomy.mask
    logs = anatomy.s0.clamp(min=SMALLEST).log()[None]
    brighter = contrast(logs, inside[None]).clamp(-LARGEST_STEP, LARGEST_STEP)[0]
    shares = _to_one(anatomy.fractions[:, mask] + contrast(anatomy.fractions, inside[None]))
    tissue = _to_one(anatomy.tissue[:, mask] + contrast(anatomy.tissue, inside[None]))
    tensors = anatomy.tensors[..., mask]
    if len(tensors) == SINGLE_TENSOR:
        packed = log(tensors[0].T, floor=FLOOR_MM2_PER_S)
        step = contrast(spread(packed.T, mask), (anatomy.fractions[0] * inside)[None])
        sharper = exp(packed + step.clamp(-LARGEST_STEP, LARGEST_STEP).T).T
        # Sharpening noise can pass free water; the whole tensor is scaled back.
        too_fast = (sharper[:3].mean(dim=0) / LARGEST_MM2_PER_S).clamp(min=1)
        tensors = torch.stack([sharper / too_fast, tensors[1]])
    return replace(
        anatomy,
        tensors=spread(tensors, mask),
        fractions=spread(shares, mask),
        s0=anatomy.s0 * spread(brighter, mask).exp(),
        tissue=spread(tissue, mask),
    )


def _to_one(shares: Float[Tensor, "k v"]) -> Float[Tensor, "k v"]:
    shares = shares.clamp(min=0)
    return shares / shares.sum(dim=0).clamp(min=SMALLEST)
