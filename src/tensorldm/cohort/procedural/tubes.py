"""Bundles as curved tubes: how much of a bundle is at a point, and in which direction it runs there.

A tube is swept by an ellipse whose radii change along a spline. Its fibres keep their relative place in the
ellipse, so that they fan out where the tube widens: p = c(s) + u n₁ + v n₂ with u/a(s) and v/b(s) constant gives the
direction t + u (a'/a) n₁ + v (b'/b) n₂.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.cohort.procedural.bundles import control_points
from tensorldm.cohort.procedural.distance import Points

SAMPLES_PER_SEGMENT: Final = 12
END_MM: Final = 22.0
STEEPEST_FAN: Final = 1.2
"""Largest sideways part of a fibre's direction relative to its course: about 50°."""


@dataclass(frozen=True)
class Tube:
    """A bundle's centreline sampled finely, with its moving frame."""

    centres: Float[Tensor, "m 3"]
    tangents: Float[Tensor, "m 3"]
    major_axes: Float[Tensor, "m 3"]
    minor_axes: Float[Tensor, "m 3"]
    radii: Float[Tensor, "m 2"]
    growth: Float[Tensor, "m 2"]
    """Relative change of the radii per mm: a'/a and b'/b."""
    trunk: Float[Tensor, " m"]
    """1 along the bundle's trunk, falling to 0 at its ends, where it enters the gyri."""
    density: float

    @property
    def box(self) -> tuple[Float[Tensor, " 3"], Float[Tensor, " 3"]]:
        """Corners of a box that holds the tube."""
        reach = self.radii.amax() + 2
        return self.centres.amin(dim=0) - reach, self.centres.amax(dim=0) + reach


def make_tube(
    name: str, generator: torch.Generator, *, scale: float, shift: float, device: torch.device | str = "cpu"
) -> Tube:
    """The tube of a named bundle in one head.

    ``scale`` multiplies its radii; its control points move by ``shift`` mm, half of it all together.
    """
    course, table = control_points(name)
    points = torch.tensor(table, dtype=torch.float32)
    move = shift * (torch.randn(1, 3, generator=generator) + torch.randn(len(points), 3, generator=generator)) / 2**0.5
    growth = torch.exp(0.12 * torch.randn(len(points), 1, generator=generator))
    if course.commissure:
        # A commissure moves as a mirror image of itself, so that it crosses the midplane at a right angle.
        move = (move + move.flip(0) * torch.tensor([-1.0, 1.0, 1.0])) / 2
        growth = (growth + growth.flip(0)) / 2
    points[:, :3] += move
    points[:, 3:] *= growth
    curve = _catmull_rom(points.to(device))
    centres, radii = curve[:, :3], curve[:, 3:].clamp_min(0.5) * scale
    steps = torch.gradient(centres, dim=0)[0]
    lengths = steps.norm(dim=-1, keepdim=True)
    tangents = steps / lengths
    wide = torch.tensor(course.wide, device=device).expand_as(tangents).clone()
    # Mirrored halves need a mirrored wide axis, or a commissure's ellipse would twist at the midline.
    wide[:, 0] = wide[:, 0] * torch.where(centres[:, 0] < 0, -1.0, 1.0)
    major = torch.nn.functional.normalize(wide - (wide * tangents).sum(dim=-1, keepdim=True) * tangents, dim=-1)
    return Tube(
        centres=centres,
        tangents=tangents,
        major_axes=major,
        minor_axes=torch.linalg.cross(tangents, major),
        radii=radii,
        growth=torch.gradient(radii, dim=0)[0] / lengths / radii,
        trunk=_trunk(lengths[:, 0]),
        density=course.density,
    )


def _trunk(steps: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """A ramp over the last mm at both ends."""
    travelled = steps.cumsum(dim=0)
    to_end = torch.minimum(travelled, travelled[-1] - travelled)
    return (to_end / END_MM).clamp(0, 1)


class Followed(NamedTuple):
    """A tube at a list of points."""

    amount: Float[Tensor, " n"]
    """How much of the tube is there, 0 to 1."""
    direction: Points
    """Unit vectors along its fibres."""
    trunk: Float[Tensor, " n"]
    """The same as ``amount``, but only along the trunk."""


def follow(points: Points, tube: Tube, *, softness: float) -> Followed:
    """What a tube is at each point."""
    nearest = _nearest(points, tube.centres)
    tangent = tube.tangents[nearest]
    offset = points - tube.centres[nearest]
    along = (offset * tangent).sum(dim=-1)
    spacing = (tube.centres[1:] - tube.centres[:-1]).norm(dim=-1).mean()
    part = (along / spacing).clamp(-0.5, 0.5)[:, None]
    following = (nearest + part[:, 0].sign().long()).clamp(0, len(tube.centres) - 1)

    def between(values: Float[Tensor, "m j"]) -> Float[Tensor, "n j"]:
        return torch.lerp(values[nearest], values[following], part.abs())

    major, minor = between(tube.major_axes), between(tube.minor_axes)
    coordinates = torch.stack([(offset * major).sum(dim=-1), (offset * minor).sum(dim=-1)], dim=-1)
    radii = between(tube.radii)
    reach = (coordinates / radii).norm(dim=-1)
    beyond = (along.abs() - spacing).clamp_min(0)
    amount = torch.sigmoid(((1 - reach) * radii.amin(dim=-1) - beyond) / softness)
    fan = (coordinates * between(tube.growth)).clamp(-STEEPEST_FAN, STEEPEST_FAN)
    direction = between(tube.tangents) + fan[:, :1] * major + fan[:, 1:] * minor
    return Followed(amount, torch.nn.functional.normalize(direction, dim=-1), amount * tube.trunk[nearest])


def _nearest(points: Points, centres: Float[Tensor, "m 3"], *, chunk: int = 65536) -> Tensor:
    """Index of the nearest sample of the centreline."""
    return torch.cat([torch.cdist(part, centres).argmin(dim=-1) for part in torch.split(points, chunk)])


def _catmull_rom(points: Float[Tensor, "m j"]) -> Float[Tensor, "s j"]:
    """A smooth curve through every control point."""
    first, last = 2 * points[:1] - points[1:2], 2 * points[-1:] - points[-2:-1]
    padded = torch.cat([first, points, last])
    t = torch.arange(SAMPLES_PER_SEGMENT, device=points.device, dtype=points.dtype)[:, None] / SAMPLES_PER_SEGMENT
    pieces = []
    for before, start, end, after in zip(padded[:-3], padded[1:-2], padded[2:-1], padded[3:], strict=True):
        slope_start, slope_end = (end - before) / 2, (after - start) / 2
        rise = end - start
        pieces.append(
            start
            + slope_start * t
            + (3 * rise - 2 * slope_start - slope_end) * t**2
            + (slope_start + slope_end - 2 * rise) * t**3
        )
    return torch.cat([*pieces, points[-1:]])
