"""Well-spread gradient directions: electrostatic repulsion on the half sphere.

A direction and its negative measure the same, so every direction repels all others and their negatives. The minimum
is found by gradient descent from a seeded start, then put into an order in which every beginning is well spread too,
so that a scan that is stopped early is still of use.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from tensorldm.cohort.draws import rotation
from tensorldm.rng import generator as named_generator

REPULSION_STEPS = 600
FIRST_STEP_RADIANS = 0.1
STEP_DECAY = 0.99
"""Per step; the last step moves by less than 0.02°."""


@lru_cache(maxsize=128)
def spread_directions(count: int, *, seed: int = 0) -> Float[Tensor, "n 3"]:
    """``count`` unit vectors spread evenly over the half sphere, float64; the same for the same seed."""
    generator = named_generator(seed, "directions", count)
    vectors = normalize(torch.randn(count, 3, generator=generator, dtype=torch.float64), dim=1)
    step = FIRST_STEP_RADIANS
    for _ in range(REPULSION_STEPS):
        force = _force(vectors)
        tangent = force - (force * vectors).sum(dim=1, keepdim=True) * vectors
        # The longest move is the step itself, so that no vector jumps over its neighbour.
        longest = tangent.norm(dim=1).max().clamp(min=1e-12)
        vectors = normalize(vectors + step * tangent / longest, dim=1)
        step *= STEP_DECAY
    return _nested_order(vectors)


def axis_triad(tilt_degrees: float, *, azimuths: Float[Tensor, "3"]) -> Float[Tensor, "3 3"]:
    """Three directions, each ``tilt_degrees`` off the x, y or z axis, leaning to the side that its azimuth gives."""
    return tilted_triad(torch.full((3,), tilt_degrees, dtype=torch.float64), azimuths=azimuths)


def tilted_triad(tilts_degrees: Float[Tensor, "3"], *, azimuths: Float[Tensor, "3"]) -> Float[Tensor, "3 3"]:
    """Three directions off the x, y and z axes, each by its own tilt, to the side that its azimuth gives."""
    axes, turn = torch.eye(3, dtype=torch.float64), azimuths.double()[:, None]
    # Turning about a vector across the axis tilts by exactly the angle.
    across = turn.cos() * axes[[1, 2, 0]] + turn.sin() * axes[[2, 0, 1]]
    turns = rotation(across * torch.deg2rad(tilts_degrees.double())[:, None])
    return torch.einsum("nij,nj->ni", turns, axes)


def _force(vectors: Float[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
    """Coulomb's force of all other directions and of the negatives of all."""
    total = torch.zeros_like(vectors)
    for others in (vectors, -vectors):
        apart = vectors[:, None] - others[None]
        distance = apart.norm(dim=-1)
        distance = torch.where(distance > 1e-9, distance, torch.inf)
        total = total + (apart / distance[..., None] ** 3).sum(dim=1)
    return total


def _nested_order(vectors: Float[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
    """Take in turn the direction that is repelled least by those already taken."""
    cosines = (vectors @ vectors.T).clamp(-1, 1)
    energy = 1 / (2 - 2 * cosines).clamp(min=1e-12).sqrt() + 1 / (2 + 2 * cosines).clamp(min=1e-12).sqrt()
    chosen = [0]
    felt = energy[0].clone()
    while len(chosen) < len(vectors):
        felt[chosen] = torch.inf
        nearest = int(felt.argmin())
        chosen.append(nearest)
        felt = felt + energy[nearest]
    return vectors[chosen]
