"""White matter: up to three fibre populations per voxel, from the bundles that meet there and a background.

Bundles that run nearly parallel share a population; the three strongest populations are kept.
Axes: n voxel, m population.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.cohort.procedural.distance import Points
from tensorldm.cohort.procedural.tubes import Tube, follow

NUM_POPULATIONS: Final = 3
PARALLEL_COSINE: Final = 0.94
"""About 20°: closer directions are one population."""


@dataclass
class Populations:
    """Fibre populations being collected, in no order."""

    weights: Float[Tensor, "n m"]
    directions: Float[Tensor, "n m 3"]

    def add(self, rows: Tensor, weight: Float[Tensor, " r"], *, direction: Float[Tensor, "r 3"]) -> None:
        """Merge a bundle into a parallel population, else let it take the weakest one's place if it is stronger."""
        weights, directions = self.weights[rows], self.directions[rows]
        cosine = (directions * direction[:, None]).sum(dim=-1)
        closeness, twin = (cosine.abs() * (weights > 0)).max(dim=-1)
        parallel = closeness > PARALLEL_COSINE
        weakest_weight, weakest = weights.min(dim=-1)
        slot = torch.where(parallel, twin, weakest)[:, None]
        old_weight = weights.gather(1, slot)[:, 0]
        old_direction = directions.gather(1, slot[..., None].expand(-1, -1, 3))[:, 0]
        aligned = direction * torch.where((old_direction * direction).sum(dim=-1, keepdim=True) < 0, -1.0, 1.0)
        merged = torch.nn.functional.normalize(old_weight[:, None] * old_direction + weight[:, None] * aligned, dim=-1)
        stronger = weight > weakest_weight
        new_weight = torch.where(parallel, old_weight + weight, torch.where(stronger, weight, old_weight))
        replaced = torch.where(stronger[:, None], direction, old_direction)
        new_direction = torch.where(parallel[:, None], merged, replaced)
        weights.scatter_(1, slot, new_weight[:, None])
        directions.scatter_(1, slot[..., None].expand(-1, -1, 3), new_direction[:, None])
        self.weights[rows], self.directions[rows] = weights, directions


@dataclass(frozen=True)
class BundlePart:
    """Where a bundle is present: rows of the voxel list, and the bundle there."""

    rows: Tensor
    amount: Float[Tensor, " r"]
    direction: Float[Tensor, "r 3"]
    trunk: Float[Tensor, " r"]


def place_bundles(points: Points, tubes: Mapping[str, Tube], *, softness: float) -> dict[str, BundlePart]:
    """Every bundle at the points inside its box; amounts below 2 % are dropped."""
    parts = {}
    for name, tube in tubes.items():
        low, high = tube.box
        rows = ((points > low) & (points < high)).all(dim=-1).nonzero()[:, 0]
        found = follow(points[rows], tube, softness=softness)
        kept = found.amount > 0.02
        parts[name] = BundlePart(rows[kept], found.amount[kept], found.direction[kept], found.trunk[kept])
    return parts


def collect(
    parts: Mapping[str, BundlePart],
    *,
    densities: Mapping[str, float],
    background: Points,
    background_weight: float,
    texture: Float[Tensor, " n"],
) -> Populations:
    """The three strongest populations of every voxel, weights summing to 1; every voxel has the background."""
    count = len(background)
    populations = Populations(
        weights=background.new_zeros(count, NUM_POPULATIONS),
        directions=background[:, None].repeat(1, NUM_POPULATIONS, 1),
    )
    populations.weights[:, 0] = background_weight
    for name, part in parts.items():
        weight = part.amount * densities[name] * texture[part.rows]
        populations.add(part.rows, weight, direction=part.direction)
    populations.weights = populations.weights / populations.weights.sum(dim=-1, keepdim=True)
    return populations


def strongest(parts: Mapping[str, BundlePart], *, like: Points) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """The largest amount of any bundle, and of any bundle's trunk, at each voxel."""
    amount, trunk = like.new_zeros(len(like)), like.new_zeros(len(like))
    for part in parts.values():
        amount[part.rows] = torch.maximum(amount[part.rows], part.amount)
        trunk[part.rows] = torch.maximum(trunk[part.rows], part.trunk)
    return amount, trunk


def bundle_rows(part: BundlePart, white: Float[Tensor, " n"], *, least: float = 0.5) -> Bool[Tensor, " r"]:
    """Which of a bundle's rows count as its mask: at least half inside the tube, and at least half white matter."""
    return (part.amount > least) & (white[part.rows] > least)
