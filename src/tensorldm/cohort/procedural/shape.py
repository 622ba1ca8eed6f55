"""The geometry of a brain without fibres: hull, fissures, folded cortex, ventricles and deep grey.

Everything is a signed distance in the average head's coordinates (mm, RAS, origin near the anterior commissure).
The cortex is a ribbon of constant thickness under every surface that touches cerebrospinal fluid: the hull, the
fissure between the hemispheres, the Sylvian fissures, and sulci. A sulcus is a piece of the zero set of a random
field that is nearly constant along the inward direction: a sheet that runs from the surface down to its depth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

from tensorldm.cohort.procedural.distance import Distances, Points, chain, ellipsoid, mirrored, union
from tensorldm.cohort.procedural.noise import PlaneWaves, draw_waves
from tensorldm.cohort.procedural.parameters import HeadShape

HEMISPHERE_CENTRE_MM: Final = (26.0, -17.0, 10.0)
HEMISPHERE_RADII_MM: Final = (40.0, 85.0, 58.0)
FISSURE_HALF_WIDTH_MM: Final = 0.9
SECONDARY_DEPTH: Final = 0.4
"""Depth of secondary sulci relative to the primary ones."""


@dataclass(frozen=True)
class Folds:
    """The random fields that a head's sulci are made of."""

    pattern: PlaneWaves
    secondary: PlaneWaves
    wander: tuple[PlaneWaves, PlaneWaves, PlaneWaves]
    depth: PlaneWaves
    width: PlaneWaves


def draw_folds(shape: HeadShape, generator: torch.Generator, *, device: torch.device | str = "cpu") -> Folds:
    """One head's sulcal pattern."""

    def draw(wavelength: float, count: int) -> PlaneWaves:
        return draw_waves(generator, wavelength, count=count, device=device)

    return Folds(
        pattern=draw(shape.fold_wavelength, 32),
        secondary=draw(shape.fold_wavelength / 1.4, 24),
        wander=(draw(55.0, 8), draw(55.0, 8), draw(55.0, 8)),
        depth=draw(40.0, 12),
        width=draw(45.0, 12),
    )


def cerebrum(points: Points) -> Distances:
    """Depth below the smooth outer surface of both hemispheres."""
    side = mirrored(points)
    taper = 1 + 0.16 * (side[:, 1] + 17) / 87
    egg = torch.stack([side[:, 0] * taper, side[:, 1], side[:, 2]], dim=-1)
    upper = ellipsoid(egg, (0.0, -17.0, 12.0), radii=(68.0, 87.0, 66.0))
    lower = ellipsoid(egg, (0.0, -17.0, 12.0), radii=(68.0, 87.0, 34.0))
    main = torch.where(points[:, 2] > 12, upper, lower)
    temporal = ellipsoid(side, (46.0, -16.0, -20.0), radii=(20.0, 46.0, 22.0))
    orbital = ellipsoid(side, (18.0, 33.0, -5.0), radii=(27.0, 31.0, 14.0))
    return union(union(main, temporal, blend=6.0), orbital, blend=12.0)


def cerebellum(points: Points) -> Distances:
    """Depth inside the cerebellum."""
    side = mirrored(points)
    hemisphere = ellipsoid(side, (24.0, -64.0, -38.0), radii=(29.0, 27.0, 20.0))
    vermis = ellipsoid(side, (0.0, -64.0, -31.0), radii=(12.0, 24.0, 20.0))
    return union(hemisphere, vermis, blend=5.0)


def brainstem(points: Points) -> Distances:
    """Depth inside midbrain, pons and medulla."""
    path = [(0.0, -16.0, -4.0), (0.0, -22.0, -18.0), (0.0, -25.0, -32.0), (0.0, -35.0, -50.0), (0.0, -42.0, -72.0)]
    return chain(points, path, radii=[16.0, 16.0, 15.0, 9.0, 7.5])


def envelope(points: Points) -> Distances:
    """Depth below a smooth wrapping of the whole brain, as a brain mask draws it: basal cisterns are inside."""
    return union(union(cerebrum(points), cerebellum(points), blend=24.0), brainstem(points), blend=24.0)


def fissure(points: Points) -> Distances:
    """Distance (positive) to the sheet between the hemispheres, which ends at the corpus callosum."""
    along = torch.stack([torch.zeros_like(points[:, 0]), points[:, 1], points[:, 2]], dim=-1)
    joined = ellipsoid(along, (0.0, -4.0, 0.0), radii=(1e3, 38.0, 31.5)).clamp_min(0)
    return torch.hypot(points[:, 0].abs(), joined)


def sylvian(points: Points) -> Distances:
    """Distance to the Sylvian fissure: a sheet from the side of the head to the insula, and the insula's own sheet."""
    side = mirrored(points)
    x, y, z = side.unbind(dim=-1)
    level = -4.0 - 0.42 * (y - 12)
    beyond = (y - 20).clamp_min(0) + (-38 - y).clamp_min(0)
    lateral = (torch.stack([z - level, (38.0 - x).clamp_min(0), beyond], dim=-1)).norm(dim=-1)
    above = (z - level - 13).clamp_min(0) + (level - 9 - z).clamp_min(0)
    insular = torch.stack([x - 39.0, above, (y - 18).clamp_min(0) + (-22 - y).clamp_min(0)], dim=-1).norm(dim=-1)
    return torch.minimum(lateral, insular)


def sulci(points: Points, depth: Distances, *, folds: Folds, shape: HeadShape) -> Distances:
    """Distance to the fluid of the nearest sulcus, deep primary or shallow secondary."""
    floor = shape.sulcus_depth * (1 + 0.3 * folds.depth(points))
    deep = ellipsoid(mirrored(points), (12.0, -8.0, 8.0), radii=(30.0, 48.0, 32.0))
    under = torch.minimum(depth, fissure(points) + 0.4 * floor)
    half_width = shape.sulcus_half_width * (1 + 0.5 * folds.width(points)).clamp(0.2, 2.0)
    primary = torch.hypot(_to_sheet(points, folds.pattern, folds=folds), _beyond(under - floor, deep)) - half_width
    shallow = _beyond(under - SECONDARY_DEPTH * floor, deep)
    secondary = torch.hypot(_to_sheet(points, folds.secondary, folds=folds), shallow) - 0.6 * half_width
    nearest: Distances = torch.minimum(primary, secondary)
    return nearest


def _beyond(below_floor: Distances, deep: Distances) -> Distances:
    """How far a point lies beyond the end of a sulcus: below its floor, or in the core that no sulcus enters."""
    return torch.maximum(below_floor, deep + 2.0).clamp_min(0)


def _to_sheet(points: Points, pattern: PlaneWaves, *, folds: Folds) -> Distances:
    """Distance to the zero set of a fold pattern, in first order |n| / |∇n|."""
    with torch.enable_grad():
        places = points if points.requires_grad else points.detach().requires_grad_()
        field = pattern(_on_the_surface(places, folds))
        (slope,) = torch.autograd.grad(field.sum(), places, retain_graph=points.requires_grad)
    # The slope counts as constant, so that the distance's own gradient is the sheet's normal.
    value = field if points.requires_grad else field.detach()
    distance: Distances = value.abs() / torch.linalg.vector_norm(slope, dim=-1).clamp_min(1e-3)
    return distance


def _on_the_surface(points: Points, folds: Folds) -> Points:
    """Where a point's sulcal pattern is read: drawn on each hemisphere's surface and carried inwards."""
    left = (points[:, :1] < 0).to(points.dtype)
    side = mirrored(points)
    offset = side - side.new_tensor(HEMISPHERE_CENTRE_MM)
    radii = side.new_tensor(HEMISPHERE_RADII_MM)
    surface = offset / torch.linalg.vector_norm(offset / radii, dim=-1, keepdim=True).clamp_min(0.2)
    # The hemispheres have their own patterns: the left one reads the field far away.
    place: Points = 0.85 * surface + 0.15 * offset + 900.0 * left
    place = place + 4.0 * torch.stack([field(place) for field in folds.wander], dim=-1)
    return place


def ventricles(points: Points, scale: float) -> Distances:
    """Lateral ventricles with their horns, third and fourth ventricle; ``scale`` widens them."""
    side = mirrored(points)
    body = [(7.5, 30.0, 4.0), (6.5, 18.0, 13.0), (6.5, 0.0, 18.5), (10.0, -20.0, 20.0), (20.0, -36.0, 15.0)]
    lateral = chain(side, body, radii=[scale * r for r in (3.0, 4.6, 4.4, 4.8, 6.0)])
    temporal = [(20.0, -36.0, 15.0), (29.0, -42.0, 4.0), (35.0, -28.0, -9.0), (32.0, -12.0, -18.0)]
    lateral = torch.maximum(lateral, chain(side, temporal, radii=[scale * r for r in (6.0, 5.0, 2.2, 1.8)]))
    occipital = [(22.0, -40.0, 12.0), (24.0, -58.0, 6.0), (22.0, -72.0, 4.0)]
    lateral = torch.maximum(lateral, chain(side, occipital, radii=[scale * r for r in (5.5, 3.2, 1.4)]))
    third = ellipsoid(side, (0.0, -11.0, -1.0), radii=(2.2 * scale, 15.0, 10.0))
    fourth = ellipsoid(side, (0.0, -43.0, -34.0), radii=(6.0 * scale, 4.5 * scale, 9.0))
    return torch.maximum(torch.maximum(lateral, third), fourth)


def nuclei(points: Points) -> Distances:
    """Thalamus, caudate, putamen with pallidum, hippocampus with amygdala."""
    side = mirrored(points)
    x, y, z = side.unbind(dim=-1)
    # Thalamus and lentiform nucleus lie obliquely: their front ends are nearer to the midline.
    turned = torch.stack([x + 0.35 * (y + 18), y, z], dim=-1)
    thalamus = ellipsoid(turned, (11.5, -18.0, 7.0), radii=(8.5, 15.0, 9.5))
    lentiform = ellipsoid(torch.stack([x + 0.28 * (y - 0), y, z], dim=-1), (25.5, 0.0, 0.0), radii=(7.0, 18.0, 12.0))
    caudate = chain(
        side,
        [(11.0, 20.0, 0.0), (13.0, 14.0, 10.0), (15.5, 0.0, 19.0), (19.0, -18.0, 22.0)],
        radii=[5.0, 5.5, 3.5, 2.0],
    )
    hippocampus = chain(
        side,
        [(21.0, -4.0, -21.0), (26.0, -16.0, -18.0), (27.0, -32.0, -7.0), (20.0, -39.0, 2.0)],
        radii=[7.0, 5.0, 4.5, 3.0],
    )
    return torch.stack([thalamus, lentiform, caudate, hippocampus]).amax(dim=0)


def gradient(field: Callable[[Points], Distances], points: Points) -> Points:
    """Unit gradient of a distance at every point; zero where it has none, as in the corner of two sheets."""
    with torch.enable_grad():
        places = points.detach().requires_grad_()
        (slope,) = torch.autograd.grad(field(places).sum(), places)
    return torch.nn.functional.normalize(slope.nan_to_num(nan=0.0), dim=-1)
