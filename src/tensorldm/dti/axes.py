"""Which gradient stands for which axis: the paper's choice of three directions, made in one place."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tensorldm.shapes import Directions

FARTHEST_DEGREES = 55.0
"""No direction is farther than 54.7° from its nearest axis."""
MOST_CANDIDATES = 24
"""For each axis; farther ones are not looked at, and repeats of one direction count once."""
SAME_DIRECTION_DEGREES = 0.1
"""Repeats differ by the digits of a text file."""


class AxisChoice(NamedTuple):
    """For x, y and z in turn: the index of the direction that stands for it, and the angle between them."""

    indices: tuple[int, int, int]
    angles_degrees: tuple[float, float, float]


def nearest_to_axes(directions: Directions, *, antipodal: bool = True) -> AxisChoice:
    """The three directions, each used once, whose angles to the axes have the smallest sum [choice: nearest-axis].

    A gradient and its negative measure the same, so angles are antipodal; ``antipodal=False`` takes the paper's words
    literally: -x is then 180° from x.
    """
    from scipy.optimize import linear_sum_assignment  # lazy: a model can be built and run without SciPy

    assert len(directions) >= 3, "three axes need three directions"
    angles = _angles_to_axes(directions, antipodal=antipodal)
    # Joint, not greedy: the direction nearest to x may be the only one near y.
    x, y, z = (int(index) for index in linear_sum_assignment(_cost(angles).numpy())[1])
    return AxisChoice((x, y, z), (float(angles[x, 0]), float(angles[y, 1]), float(angles[z, 2])))


def nearest_that_span(directions: Directions, *, least_volume: float, antipodal: bool = True) -> AxisChoice | None:
    """The same among directions that span space, |g1 · (g2 × g3)| ≥ ``least_volume`` [choice: spanning-triad], or None.

    None of them may be farther from its axis than every direction is from some axis, or it would not stand for it. Of
    six directions along the edges of a cube, each lies at 45° to two axes, so many choices tie, and the first of
    them may be coplanar.
    """
    angles = _angles_to_axes(directions, antipodal=antipodal)
    cost = _cost(angles)
    different = _first_of_each(directions, antipodal=antipodal)
    near = different[cost[:, different].argsort(dim=1)[:, :MOST_CANDIDATES]]
    triads = torch.cartesian_prod(*near)
    sums = cost[torch.arange(3), triads].sum(dim=1)
    volumes = torch.linalg.det(directions.double().cpu()[triads]).abs()
    good = (volumes >= least_volume) & (angles.T[torch.arange(3), triads] <= FARTHEST_DEGREES).all(dim=1)
    if not good.any():
        return None
    best = int(torch.where(good, sums, torch.inf).argmin())
    x, y, z = (int(index) for index in triads[best])
    return AxisChoice((x, y, z), (float(angles[x, 0]), float(angles[y, 1]), float(angles[z, 2])))


def _angles_to_axes(directions: Directions, *, antipodal: bool) -> Float[Tensor, "n 3"]:
    """In degrees, of each direction to x, y and z."""
    cosines = directions.double().cpu()
    return torch.rad2deg(torch.acos((cosines.abs() if antipodal else cosines).clamp(-1, 1)))


def _first_of_each(directions: Directions, *, antipodal: bool) -> Int[Tensor, " m"]:
    """Where each direction occurs for the first time."""
    vectors = directions.double().cpu()
    cosines = vectors @ vectors.T
    same = (cosines.abs() if antipodal else cosines) > math.cos(math.radians(SAME_DIRECTION_DEGREES))
    return torch.nonzero(~same.tril(diagonal=-1).any(dim=1)).flatten()


def _cost(angles: Float[Tensor, "n 3"]) -> Float[Tensor, "3 n"]:
    """Directions equal up to a file's digits (repeats) tie, and then the earliest volume is the cheapest."""
    return angles.T.round(decimals=3) + 1e-6 * torch.arange(len(angles))
