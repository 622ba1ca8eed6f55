"""Another head from an anatomy: mirrored, posed, warped, its tensors turned with the tissue.

Signal fractions, b=0 signal and tissue are interpolated linearly over the brain alone (what is outside does not mix
in). Each compartment's tensor is interpolated as the mean weighted by its signal fraction, so that the mean tensor
Σ f_k D_k is interpolated linearly, as the signal of weak weighting is; only then is it turned.
Axes: k compartment, d tensor component (6), v voxel of the brain, x y z space.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import radians

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from tensorldm.cohort.anatomy import Anatomy, Bundle
from tensorldm.cohort.axes import Shape, Size
from tensorldm.cohort.deformation import Deformation, pull_back, sample
from tensorldm.cohort.draws import rotation, smooth_field, uniform
from tensorldm.cohort.reorientation import carry, determinant, reorient
from tensorldm.cohort.settings import Reorientation, WarpSettings
from tensorldm.components import COLUMNS, ROWS
from tensorldm.dti.maps import principal_direction
from tensorldm.dti.packing import MIRROR_SIGNS

VELOCITY_MM = 4.0
"""Grid of the velocity field; its finest detail is several times coarser."""
SMALLEST = 1e-6
"""Below this a fraction or coverage is nothing; keeps divisions finite."""
SIDES = (("left", "right"), ("L", "R"))


def draw_deformation(
    anatomy: Anatomy,
    settings: WarpSettings,
    *,
    generator: Generator,
    extra_velocity: Float[Tensor, "3 a b c"] | None = None,
) -> Deformation:
    """A random pose and warp of an anatomy onto its own grid; ``extra_velocity`` (on the velocity grid) is added."""
    velocity = draw_velocity(anatomy, settings, generator=generator)
    if extra_velocity is not None:
        velocity += extra_velocity
    return pull_back(
        draw_pose(settings, generator),
        velocity,
        velocity_voxel_size=velocity_grid(anatomy)[1],
        shape=_shape(anatomy.s0),
        voxel_size=anatomy.voxel_size,
    )


def draw_velocity(anatomy: Anatomy, settings: WarpSettings, *, generator: Generator) -> Float[Tensor, "3 a b c"]:
    """The field whose flow changes a head's shape, on the velocity grid: the sum of its scales."""
    shape, voxel_size = velocity_grid(anatomy)
    velocity = torch.zeros(3, *shape, device=anatomy.s0.device)
    for spacing, displacement in zip(settings.spacing_mm, settings.displacement_mm, strict=True):
        field = smooth_field(
            shape, voxel_size, spacing_mm=spacing, channels=3, generator=generator, device=velocity.device
        )
        velocity += displacement * field
    return velocity


def draw_pose(settings: WarpSettings, generator: Generator) -> Float[Tensor, "3 4"]:
    """A random affine map from the new head to the old: turned, stretched, sheared and moved."""

    def within(reach: float, count: int) -> Float[Tensor, " n"]:
        return torch.tensor([uniform(generator, (-reach, reach)) for _ in range(count)], dtype=torch.float64)

    stretch = torch.diag(1 + (within(settings.scale, 3) + within(settings.scale, 1)) / 2)
    shear = torch.eye(3, dtype=torch.float64)
    shear[0, 1], shear[0, 2], shear[1, 2] = within(settings.shear, 3)
    linear = rotation(within(radians(settings.rotation_degrees), 3)) @ stretch @ shear
    moved = within(settings.translation_mm, 3)[:, None]
    if settings.zoomed > 0 and uniform(generator, (0.0, 1.0)) < settings.zoomed:
        linear = linear / uniform(generator, settings.zoom)
    return torch.cat([linear, moved], dim=1)


def velocity_grid(anatomy: Anatomy) -> tuple[Shape, Size]:
    """A coarse grid over the same extent."""
    extents = [max(size - 1, 1) * voxel for size, voxel in zip(anatomy.s0.shape, anatomy.voxel_size, strict=True)]
    x, y, z = (round(extent / VELOCITY_MM) + 2 for extent in extents)
    return (x, y, z), (VELOCITY_MM, VELOCITY_MM, VELOCITY_MM)


def warp_anatomy(
    anatomy: Anatomy, deformation: Deformation, *, reorientation: Reorientation = "ppd", with_bundles: bool = False
) -> Anatomy:
    """The anatomy as the deformation shows it; bundles are left out unless asked for."""
    mask, covered, sampled = _sample_brain(anatomy, deformation)
    jacobian = deformation.jacobian()[mask]
    assert bool((determinant(jacobian) > 0).all()), "the deformation folds: its velocity is too steep"
    k = len(anatomy.fractions)
    shares, weighted, rest = sampled[:k], sampled[k : 7 * k], sampled[7 * k :]
    whole = shares.sum(dim=0).clamp(min=SMALLEST)
    packed = weighted.reshape(k, 6, -1).transpose(1, 2) / shares.clamp(min=SMALLEST)[..., None]
    turned = reorient(packed, jacobian, how=reorientation)
    return replace(
        anatomy,
        tensors=spread(turned.transpose(1, 2), mask),
        fractions=spread(shares / whole, mask),
        s0=spread(rest[0] / covered, mask),
        tissue=spread(rest[1:] / covered, mask),
        mask=mask,
        voxel_size=deformation.voxel_size,
        bundles=_warp_bundles(anatomy, deformation, mask) if with_bundles else {},
    )


def mirror_anatomy(anatomy: Anatomy) -> Anatomy:
    """Left and right swapped, in the tensors' signs and the bundles' names too."""
    signs = anatomy.tensors.new_tensor(MIRROR_SIGNS)[:, None, None, None]
    flip_x = anatomy.s0.new_tensor([-1.0, 1.0, 1.0])[:, None, None, None]
    return replace(
        anatomy,
        tensors=anatomy.tensors.flip(-3) * signs,
        fractions=anatomy.fractions.flip(-3),
        s0=anatomy.s0.flip(-3),
        tissue=anatomy.tissue.flip(-3),
        mask=anatomy.mask.flip(-3),
        bundles={
            mirrored_name(name): Bundle(bundle.mask.flip(-3), bundle.directions.flip(-3) * flip_x)
            for name, bundle in anatomy.bundles.items()
        },
    )


def mirrored_name(name: str) -> str:
    """``CST_left`` becomes ``CST_right``; a name without a side stays."""
    stem, _, side = name.rpartition("_")
    for left, right in SIDES:
        if side in (left, right):
            return f"{stem}_{right if side == left else left}"
    return name


def _sample_brain(
    anatomy: Anatomy, deformation: Deformation
) -> tuple[Bool[Tensor, "x y z"], Float[Tensor, " v"], Float[Tensor, "c v"]]:
    """The new mask, and at its voxels: how much of the old brain they see, and fractions, f_k D_k, s0 and tissue."""
    inside = anatomy.mask.to(anatomy.s0.dtype)
    channels = torch.cat(
        [
            anatomy.fractions * inside,
            (anatomy.tensors * (anatomy.fractions * inside)[:, None]).flatten(0, 1),
            (anatomy.s0 * inside)[None],
            anatomy.tissue * inside,
        ]
    )
    covered = sample(inside[None], deformation.positions, voxel_size=anatomy.voxel_size)[0]
    mask = covered >= 0.5
    # Only the brain's voxels are looked up: they are a quarter of the grid.
    there = deformation.positions[:, mask][:, :, None, None]
    sampled = sample(channels, there, voxel_size=anatomy.voxel_size)[:, :, 0, 0]
    return mask, covered[mask], sampled


def _warp_bundles(anatomy: Anatomy, deformation: Deformation, mask: Bool[Tensor, "x y z"]) -> Mapping[str, Bundle]:
    jacobian = deformation.jacobian()[mask]
    there = deformation.positions[:, mask][:, :, None, None]
    return {
        name: _warp_bundle(bundle, there, jacobian=jacobian, mask=mask, voxel_size=anatomy.voxel_size)
        for name, bundle in anatomy.bundles.items()
    }


def _warp_bundle(
    bundle: Bundle,
    there: Float[Tensor, "3 v 1 1"],
    *,
    jacobian: Float[Tensor, "v 3 3"],
    mask: Bool[Tensor, "x y z"],
    voxel_size: Size,
) -> Bundle:
    """Directions have no sign, so their dyads are interpolated, not the vectors themselves."""
    dyads = bundle.directions[list(ROWS)] * bundle.directions[list(COLUMNS)]
    channels = torch.cat([bundle.mask.to(dyads.dtype)[None], dyads])
    sampled = sample(channels, there, voxel_size=voxel_size)[:, :, 0, 0]
    inside = sampled[0] >= 0.5
    directions = carry(principal_direction(sampled[1:].T), jacobian) * inside[:, None]
    return Bundle(mask=spread(inside, mask), directions=spread(directions.T, mask))


def spread(values: Tensor, mask: Bool[Tensor, "x y z"]) -> Tensor:
    """Values at the brain's voxels (last axis) laid out on the grid, zero elsewhere."""
    volume = values.new_zeros(*values.shape[:-1], *mask.shape)
    volume[..., mask] = values
    return volume


def _shape(volume: Float[Tensor, "x y z"]) -> Shape:
    x, y, z = volume.shape
    return x, y, z
