"""Directions as scanners of every kind have them: near the axes, any three, or more; and the scan they are part of.

Axes: n volume, m direction.
"""

from math import exp, log, pi

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.clinical import SchemeSettings
from tensorldm.cohort.directions import spread_directions, tilted_triad
from tensorldm.cohort.draws import any_rotation, uniform
from tensorldm.cohort.ranges import Counts, Range

TRIAD = 3
SMALL_TILTS = 1.5
"""An even draw to this power: half of the directions within a third of the largest tilt."""
TRIES = 100
FINE_COUNTS, COARSE_STEP = 20, 4
"""Beyond the first, numbers of directions come in steps: few sets are then spread, and all of them are kept."""


def draw_count(scheme: SchemeSettings, generator: Generator) -> int:
    """How many directions the input of a group of subjects has."""
    if uniform(generator, (0.0, 1.0)) < scheme.near_axes + scheme.any_triad:
        return TRIAD
    low, high = scheme.directions
    return low + int(uniform(generator, (0.0, 1.0)) * (high + 1 - low))


def draw_input(scheme: SchemeSettings, count: int, *, generator: Generator) -> Float[Tensor, "m 3"]:
    """The input's directions: ``count`` well-spread ones, turned at random, or one of the two kinds of triads."""
    if count > TRIAD:
        return spread_directions(count) @ any_rotation(generator).T
    triads = scheme.near_axes + scheme.any_triad
    if triads == 0 or uniform(generator, (0.0, triads)) < scheme.near_axes:
        tilts = scheme.tilt_degrees * torch.rand(3, generator=generator, dtype=torch.float64) ** SMALL_TILTS
        return tilted_triad(tilts, azimuths=2 * pi * torch.rand(3, generator=generator, dtype=torch.float64))
    return well_conditioned_triad(scheme.condition, generator)


def well_conditioned_triad(condition: float, generator: Generator) -> Float[Tensor, "3 3"]:
    """Any three directions whose matrix has at most this condition number; a right-angled triad if none is found."""
    for _ in range(TRIES):
        vectors = torch.nn.functional.normalize(torch.randn(3, 3, generator=generator, dtype=torch.float64), dim=1)
        if float(torch.linalg.cond(vectors)) <= condition:
            return vectors
    return any_rotation(generator)


def complete(given: Float[Tensor, "m 3"], total: int, *, generator: Generator) -> Float[Tensor, "n 3"]:
    """The given directions and others, so that ``total`` of them (or all given, if more) are spread over the sphere.

    Of a well-spread set, turned at random, each given direction takes the place of the nearest one.
    """
    if total <= len(given):
        return given
    spread = spread_directions(total) @ any_rotation(generator).T
    for direction in given:
        nearest = int((spread @ direction).abs().argmax())
        spread = torch.cat([spread[:nearest], spread[nearest + 1 :]])
    return torch.cat([given, spread])


def log_even(generator: Generator, bounds: Range) -> float:
    """A draw that is even in the logarithm."""
    return exp(uniform(generator, (log(bounds[0]), log(bounds[1]))))


def log_even_count(generator: Generator, bounds: Counts) -> int:
    """A whole number, even in the logarithm, both bounds included."""
    return min(int(log_even(generator, (float(bounds[0]), float(bounds[1] + 1)))), bounds[1])


def draw_total(generator: Generator, bounds: Counts) -> int:
    """How many directions the reference has, small numbers preferred."""
    count = log_even_count(generator, bounds)
    stepped = count if count <= FINE_COUNTS else COARSE_STEP * round(count / COARSE_STEP)
    return min(max(stepped, bounds[0]), bounds[1])
