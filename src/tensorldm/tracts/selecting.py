"""Which streamlines of a whole brain belong to a bundle [choice: bundle-selection].

A streamline belongs to it when most of it runs inside the mask, when it runs from one end of the bundle to the other,
when its length is one a bundle may have, and when it stays out of the exclusion. Where no endings are given they are
the two outer parts of the mask itself, by the way that one has to go inside it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy import ndimage
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra

from tensorldm.errors import ConfigError
from tensorldm.shapes import MaskImage
from tensorldm.tracts.bundle_masks import BundleMask
from tensorldm.tracts.regions import Region, grow, look_up
from tensorldm.tracts.streamlines import Streamlines

NEIGHBOURS: Final = [(i, j, k) for i in (0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1) if (i, j, k) > (0, 0, 0)]
"""Half of the 26: each pair is listed once."""


@dataclass(frozen=True)
class SelectionRule:
    """When a streamline belongs to a bundle."""

    margin_mm: float = 2.0
    """Mask and endings are grown by so much: a voxel of the paper's data. Masks are tight, and streamlines waver."""
    least_inside: float = 0.8
    """Share of its points in the grown mask."""
    ending_share: float = 0.4
    """How much of the way through a bundle, from either side, counts as its ending where none are given."""
    min_length_mm: float = 30.0
    max_length_mm: float = 250.0

    def __post_init__(self) -> None:
        if not 0 < self.least_inside <= 1 or not 0 < self.ending_share <= 0.5:
            raise ConfigError("A share inside is above 0 and at most 1, that of an ending at most 0.5. Mend the rule.")


def select(streamlines: Streamlines, bundle: BundleMask, rule: SelectionRule) -> Streamlines:
    """The streamlines of a whole brain that belong to the bundle, in their order."""
    lengths = streamlines.lengths_mm
    fitting = (lengths >= rule.min_length_mm) & (lengths <= rule.max_length_mm) & (streamlines.counts > 1)
    near = streamlines.chosen(fitting)
    grown = grow(bundle.inside, rule.margin_mm)
    near = near.chosen(_share(near, look_up(grown, near.points)) >= rule.least_inside)
    if bundle.exclusion is not None:
        near = near.chosen(_share(near, look_up(bundle.exclusion, near.points)) == 0)
    if not len(near):
        return near
    endings = bundle.endings or find_endings(bundle.inside, rule.ending_share)
    reached = [_share(near, look_up(grow(ending, rule.margin_mm), near.points)) > 0 for ending in endings]
    return near.chosen(reached[0] & reached[1])


def find_endings(inside: Region, share: float) -> tuple[Region, Region]:
    """The first and the last part of a mask along the longest way through it."""
    way = _way_through(inside)
    first, last = way <= share, way >= 1 - share
    return Region(first & inside.mask, inside.space), Region(last & inside.mask, inside.space)


def _way_through(inside: Region) -> Float[ndarray, "x y z"]:
    """Of each voxel, how far it is along the bundle from 0 to 1; not-a-number off its largest connected part."""
    connected = _largest(inside.mask)
    places, graph = _graph(connected, inside.space.voxel_size)
    # Twice to the farthest point: from anywhere to one tip of the bundle, from there to the other.
    tip = _distances(graph, 0).argmax()
    distance = _distances(graph, int(tip))
    way = np.full(inside.mask.shape, np.nan)
    way[tuple(places.T)] = distance / max(distance.max(), np.finfo(float).tiny)
    return way


def _distances(graph: csr_array, start: int) -> Float[ndarray, " n"]:
    return np.asarray(dijkstra(graph, directed=False, indices=np.array([start]))[0])


def _graph(mask: MaskImage, voxel_size: tuple[float, float, float]) -> tuple[Int[ndarray, "n 3"], csr_array]:
    """Voxels, and the distance from each to those it touches."""
    places = np.argwhere(mask)
    numbers = np.full([side + 2 for side in mask.shape], -1)
    numbers[tuple((places + 1).T)] = np.arange(len(places))
    starts, stops, weights = [], [], []
    for step in NEIGHBOURS:
        beside = numbers[tuple((places + 1 + step).T)]
        linked = np.flatnonzero(beside >= 0)
        starts.append(linked)
        stops.append(beside[linked])
        weights.append(np.full(len(linked), float(np.linalg.norm(np.multiply(step, voxel_size)))))
    links = (np.concatenate(weights), (np.concatenate(starts), np.concatenate(stops)))
    return places, coo_array(links, shape=(len(places),) * 2).tocsr()


def _largest(mask: MaskImage) -> MaskImage:
    parts, _ = ndimage.label(mask, np.ones((3, 3, 3)))
    return np.asarray(parts == 1 + np.bincount(parts.ravel())[1:].argmax())


def _share(streamlines: Streamlines, found: Bool[ndarray, " points"]) -> Float[ndarray, " lines"]:
    """Share of each streamline's points for which it holds."""
    counts = np.bincount(streamlines.owners, weights=found, minlength=len(streamlines))
    return np.asarray(counts / np.maximum(streamlines.counts, 1))
