"""One head from its shape: geometry, bundles and tissues put together on a grid."""

from collections.abc import Sequence
from typing import Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm import rng
from tensorldm.cohort.anatomy import Anatomy, Bundle
from tensorldm.cohort.procedural import fibres
from tensorldm.cohort.procedural import shape as geometry
from tensorldm.cohort.procedural.bundles import all_names
from tensorldm.cohort.procedural.compose import Compartments, compose
from tensorldm.cohort.procedural.coordinates import HeadFrame, draw_frame, grid_points
from tensorldm.cohort.procedural.distance import Points
from tensorldm.cohort.procedural.noise import draw_waves
from tensorldm.cohort.procedural.parameters import HeadShape
from tensorldm.cohort.procedural.texture import draw_texture
from tensorldm.cohort.procedural.tissue import TissueMap, distance_to_fluid, tissue_map
from tensorldm.cohort.procedural.tubes import make_tube

BACKGROUND_WEIGHT: Final = 0.25
BUNDLE_EDGE_MM: Final = 0.9
"""Bundles have no sharp border: their density falls over a few mm."""
MARGIN_MM: Final = 1.0
"""Fluid that the mask keeps around the brain."""


def draw_head(
    name: str,
    shape: HeadShape,
    *,
    grid: tuple[int, int, int],
    voxel_size: tuple[float, float, float],
    bundles: Sequence[str],
    device: torch.device | str = "cpu",
) -> Anatomy:
    """A head of this shape; its name decides the random part (folds, displacement, texture)."""
    generator = rng.generator(0, "procedural-head", name)
    frame = draw_frame(shape, generator, device=device)
    folds = geometry.draw_folds(shape, generator, device=device)
    everywhere = grid_points(grid, voxel_size, device=device)
    near = _near_the_brain(everywhere, frame)
    head = everywhere[near]
    points = frame.to_average(head)
    voxel_mm = sum(voxel_size) / 3
    tissues = tissue_map(points, shape, folds=folds, voxel_mm=voxel_mm)
    inside = tissues.inside > -MARGIN_MM
    head, points, tissues = head[inside], points[inside], tissues.select(inside)
    mask = near.clone()
    mask[near] = inside

    scales = {bundle: shape.callosum_scale if bundle.startswith("CC") else shape.bundle_scale for bundle in all_names()}
    tubes = {
        bundle: make_tube(bundle, generator, scale=scale, shift=shape.bundle_shift, device=device)
        for bundle, scale in scales.items()
    }
    parts = fibres.place_bundles(points, tubes, softness=BUNDLE_EDGE_MM + 0.15 * voxel_mm)
    coherence, trunks = fibres.strongest(parts, like=points)
    tissues = tissues.give_way_to(trunks)
    texture = draw_texture(points, generator, level=shape.texture, mask=mask)
    populations = fibres.collect(
        parts,
        densities={bundle: tube.density for bundle, tube in tubes.items()},
        background=_background(points, tissues, generator=generator),
        background_weight=BACKGROUND_WEIGHT,
        texture=texture.density,
    )
    columns = geometry.gradient(
        lambda places: distance_to_fluid(places, shape, folds=folds, depth=geometry.cerebrum(places)), points
    )
    directions = frame.directions_to_head(head, torch.cat([populations.directions, columns[:, None]], dim=1))
    populations.directions, columns = directions[:, : fibres.NUM_POPULATIONS], directions[:, -1]
    filled = compose(
        shape,
        tissues,
        populations=populations,
        coherence=coherence,
        columns=columns,
        texture=texture,
    )
    return _anatomy(
        name,
        filled,
        mask=mask,
        voxel_size=voxel_size,
        bundles={
            bundle: _bundle(parts[bundle], tissues.white, mask=mask, frame=frame, head=head) for bundle in bundles
        },
    )


def _near_the_brain(points: Float[Tensor, "x y z 3"], frame: HeadFrame) -> Bool[Tensor, "x y z"]:
    """A generous ellipsoid, so that the costly geometry skips the empty corners of the grid."""
    radii = frame.scale * points.new_tensor([82.0, 100.0, 92.0])
    return (points / radii).square().sum(dim=-1) < 1


def _background(points: Points, tissues: TissueMap, *, generator: torch.Generator) -> Points:
    """Fibres outside the bundles: towards the surface in the cerebrum and cerebellum, upright in the brainstem."""
    outward = geometry.gradient(geometry.cerebrum, points)
    cerebellar = geometry.gradient(geometry.cerebellum, points)
    upright = torch.zeros_like(points)
    upright[:, 2], upright[:, 1] = 1.0, 0.25
    stem = (geometry.brainstem(points) > geometry.cerebellum(points))[:, None]
    direction = torch.where(tissues.hindbrain[:, None] > 0, torch.where(stem, upright, cerebellar), outward)
    wander = torch.stack(
        [draw_waves(generator, 35.0, count=12, device=points.device)(points) for _ in range(3)], dim=-1
    )
    return torch.nn.functional.normalize(direction + 0.45 * wander, dim=-1)


def _bundle(
    part: fibres.BundlePart, white: Float[Tensor, " n"], *, mask: Bool[Tensor, "x y z"], frame: HeadFrame, head: Points
) -> Bundle:
    """A bundle's mask and its directions on the grid."""
    kept = fibres.bundle_rows(part, white)
    rows = part.rows[kept]
    moved = frame.directions_to_head(head[rows], part.direction[kept][:, None])[:, 0]
    member = torch.zeros(len(head), dtype=torch.bool, device=head.device)
    member[rows] = True
    vectors = torch.zeros_like(head)
    vectors[rows] = moved
    return Bundle(mask=_volume(member, mask), directions=_volume(vectors.T, mask))


def _volume(values: Tensor, mask: Bool[Tensor, "x y z"]) -> Tensor:
    """Scatter a list of voxels (last axis) into the grid; zero outside the mask."""
    volume = torch.zeros(*values.shape[:-1], *mask.shape, dtype=values.dtype, device=values.device)
    volume[..., mask] = values
    return volume


def _anatomy(
    name: str,
    filled: Compartments,
    *,
    mask: Bool[Tensor, "x y z"],
    voxel_size: tuple[float, float, float],
    bundles: dict[str, Bundle],
) -> Anatomy:
    return Anatomy(
        name=name,
        source=name,
        tensors=_volume(filled.tensors.permute(1, 2, 0), mask),
        fractions=_volume(filled.fractions.T, mask),
        s0=_volume(filled.s0, mask),
        tissue=_volume(filled.tissue.T, mask),
        mask=mask,
        voxel_size=voxel_size,
        bundles=bundles,
    )
