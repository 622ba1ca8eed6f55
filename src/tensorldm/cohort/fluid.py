"""Cerebrospinal fluid as a 2 mm scan shows it: clear borders, as much of it as brains have, and sulci.

Templates are dry and blurred: little of them is clearly fluid, and much is a little wet. A signal fraction f of fluid
becomes a (f/c)ᵖ / (1 + a (f/c)ᵖ), with c such that the wanted share of the brain is mostly fluid. The b=0 signal and
the tissue follow from the brightness of fluid. Axes: k compartment, v voxel of the brain, x y z space.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.anatomy import TISSUES, Anatomy
from tensorldm.cohort.axes import along_axes, gaussian_matrices
from tensorldm.cohort.clinical import DetailSettings
from tensorldm.cohort.draws import smooth_field, uniform
from tensorldm.cohort.variation import water_share
from tensorldm.cohort.warp import spread

CSF, GREY, WHITE = (TISSUES.index(name) for name in ("csf", "grey", "white"))
BRIGHTNESS = (3.0, 1.3, 1.0)
"""b=0 signal of fluid, grey and white matter."""
MOSTLY = 0.7
"""Signal fraction at which a fit at b=1000 finds more fluid than tissue (a mean diffusivity of 1.8e-3 mm²/s)."""
CENTRE = (0.1, 0.9)
"""Of what is less wet than the lower bound nothing becomes mostly fluid: it is noise."""
SHEETS_MM = 10.0
"""Distance between the folds that sulci follow, and between wet and dry patches."""
PATCHY = 0.4
"""Standard deviation of the logarithm of how wet a patch is: a rim of fluid is wide here and narrow there."""
FULL = 1.6
"""The middle third of a sulcus is nothing but fluid."""
NEAR_FWHM_MM, NEAR_COVER, DEEP_COVER = 30.0, 0.7, 0.95
"""Of a Gaussian this wide around a place at the surface half lies in the brain; sulci thin out between these shares,
from 7 to 21 mm below."""
SMALLEST = 1e-4


def vary_fluid(anatomy: Anatomy, settings: DetailSettings, *, generator: Generator) -> Anatomy:
    """Another amount of fluid, with clear borders, and in some heads further sulci."""
    share, steepness = uniform(generator, settings.fluid), uniform(generator, settings.fluid_steepness)
    has_sulci = uniform(generator, (0.0, 1.0)) < settings.sulci
    width = uniform(generator, settings.sulcus_mm)
    if share <= 0 and not has_sulci:
        return anatomy
    mask = anatomy.mask
    water = water_share(anatomy.tensors[..., mask])
    wet = (water * anatomy.fractions[:, mask]).sum(dim=0)
    patches, folds = _fields(anatomy, generator)
    fluid = steepened(wet * (PATCHY * patches[mask]).exp(), share, steepness) if share > 0 else wet
    if has_sulci:
        fluid = torch.maximum(fluid, sulci(anatomy, folds, half_width_mm=width)[mask])
    return with_fluid(anatomy, water, fluid=fluid)


def steepened(wet: Float[Tensor, " v"], share: float, steepness: float) -> Float[Tensor, " v"]:
    """Fractions made steeper about the one that this share of the voxels exceeds."""
    low, high = CENTRE
    centre = wet.kthvalue(max(1, round((1 - share) * len(wet)))).values.clamp(low, high)
    risen = MOSTLY / (1 - MOSTLY) * (wet / centre).clamp(min=0) ** steepness
    return risen / (1 + risen)


def sulci(anatomy: Anatomy, folds: Float[Tensor, "x y z"], *, half_width_mm: float) -> Float[Tensor, "x y z"]:
    """Fluid fraction of thin sheets in the grey matter near the surface: where a smooth field crosses zero."""
    x, y, z = anatomy.s0.shape
    size, device = anatomy.voxel_size, anatomy.s0.device
    # A field of unit variance over this spacing rises by about one in so many mm.
    distance = folds.abs() * SHEETS_MM / 1.5
    reach = half_width_mm + sum(size) / 6
    sheet = (FULL * (1 - distance / reach)).clamp(0, 1)
    near = gaussian_matrices((x, y, z), size, fwhm=NEAR_FWHM_MM, device=device)
    cover = along_axes(anatomy.mask.to(folds.dtype)[None], near)[0]
    shallow = ((DEEP_COVER - cover) / (DEEP_COVER - NEAR_COVER)).clamp(0, 1)
    return sheet * shallow * (1 - anatomy.tissue[WHITE])


def _fields(anatomy: Anatomy, generator: Generator) -> tuple[Float[Tensor, "x y z"], Float[Tensor, "x y z"]]:
    """Where there is more or less fluid, and what the sulci follow."""
    x, y, z = anatomy.s0.shape
    patches, folds = smooth_field(
        (x, y, z), anatomy.voxel_size, spacing_mm=SHEETS_MM, channels=2, generator=generator, device=anatomy.s0.device
    )
    return patches, folds


def with_fluid(anatomy: Anatomy, water: Float[Tensor, "k v"], *, fluid: Float[Tensor, " v"]) -> Anatomy:
    """The anatomy with this signal fraction of fluid in every voxel; tissue keeps its proportions."""
    mask = anatomy.mask
    fractions, tissue = anatomy.fractions[:, mask], anatomy.tissue[:, mask]
    wet = water * fractions
    dry = fractions - wet
    before = wet.sum(dim=0)
    # A compartment of fluid that was empty takes what sulci bring: the wettest one.
    wettest = torch.nn.functional.one_hot(water.argmax(dim=0), len(water)).T.to(wet)
    wet = torch.where(before > SMALLEST, wet / before.clamp(min=SMALLEST), wettest)
    dry = dry / dry.sum(dim=0).clamp(min=SMALLEST)
    whiteness = tissue[WHITE] / (tissue[GREY] + tissue[WHITE]).clamp(min=SMALLEST)
    solid = BRIGHTNESS[GREY] + (BRIGHTNESS[WHITE] - BRIGHTNESS[GREY]) * whiteness
    volume_before = before / BRIGHTNESS[CSF] + (1 - before) / solid
    volume_after = fluid / BRIGHTNESS[CSF] + (1 - fluid) / solid
    csf = fluid / BRIGHTNESS[CSF] / volume_after
    rest = tissue[GREY:] / tissue[GREY:].sum(dim=0).clamp(min=SMALLEST)
    shares = fluid * wet + (1 - fluid) * dry
    return replace(
        anatomy,
        fractions=spread(shares / shares.sum(dim=0).clamp(min=SMALLEST), mask),
        s0=anatomy.s0 * spread(volume_before / volume_after, mask),
        tissue=spread(torch.cat([csf[None], (1 - csf) * rest]), mask),
    )
