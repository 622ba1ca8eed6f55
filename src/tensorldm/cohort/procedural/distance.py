"""Signed distances (mm, positive inside) of the simple solids that a head is put together from."""

import torch
from jaxtyping import Float
from torch import Tensor

Points = Float[Tensor, "n 3"]
Distances = Float[Tensor, " n"]
Triple = tuple[float, float, float]


def ellipsoid(points: Points, centre: Triple, *, radii: Triple) -> Distances:
    """Distance to an ellipsoid's surface, exact in first order near it."""
    size = points.new_tensor(radii)
    offset = (points - points.new_tensor(centre)) / size
    reach = torch.linalg.vector_norm(offset, dim=-1).clamp_min(1e-6)
    slope = torch.linalg.vector_norm(offset / size, dim=-1).clamp_min(1e-6)
    inside: Distances = reach * (1 - reach) / slope
    return inside


def chain(points: Points, path: list[Triple], *, radii: list[float]) -> Distances:
    """Distance to a chain of rounded cones through ``path``."""
    inside = torch.full_like(points[:, 0], -torch.inf)
    for start, end, first, last in zip(path[:-1], path[1:], radii[:-1], radii[1:], strict=True):
        origin = points.new_tensor(start)
        axis = points.new_tensor(end) - origin
        along = ((points - origin) @ axis / (axis @ axis)).clamp(0, 1)
        gap = torch.linalg.vector_norm(points - origin - along[:, None] * axis, dim=-1)
        inside = torch.maximum(inside, first + along * (last - first) - gap)
    return inside


def union(first: Distances, second: Distances, *, blend: float) -> Distances:
    """The larger distance, rounded over ``blend`` mm where two solids meet."""
    overlap = (blend - (first - second).abs()).clamp_min(0) / blend
    return torch.maximum(first, second) + overlap.square() * blend / 4


def mirrored(points: Points) -> Points:
    """Both hemispheres on the right side (x ≥ 0)."""
    return torch.stack([points[:, 0].abs(), points[:, 1], points[:, 2]], dim=-1)
