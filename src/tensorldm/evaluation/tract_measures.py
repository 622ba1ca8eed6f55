"""How alike the bundles of two tractograms are: distance of their cores [E12], overlap and number of streamlines.

A bundle that was not found has no distance: its figures are not-a-number in the table, and the count says why.
"""

from dataclasses import dataclass

from jaxtyping import Float
from numpy import ndarray

from tensorldm.evaluation.measures import Figure
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage
from tensorldm.tracts.core import NEGLIGIBLE_MM, core_distance, find_core, symmetric_core_distance
from tensorldm.tracts.overlap import dice, visited
from tensorldm.tracts.streamlines import Streamlines

CORE, CORE_CUT, CORE_SYMMETRIC = "core_distance_mm", "core_distance_cut_mm", "core_distance_symmetric_mm"
DICE, RATIO, STREAMLINES = "bundle_dice", "streamline_ratio", "streamlines"
TRACT_METRICS = (CORE, CORE_CUT, CORE_SYMMETRIC, DICE, RATIO, STREAMLINES)


@dataclass(frozen=True, eq=False)
class Bundle:
    """A bundle with what it is compared by, worked out once."""

    name: str
    streamlines: Streamlines
    core: Float[ndarray, "100 3"] | None
    """None where there are too few streamlines."""
    voxels: MaskImage


def prepare_bundle(name: str, streamlines: Streamlines, *, space: Space) -> Bundle:
    """Core and visited voxels of a bundle on a grid."""
    return Bundle(name, streamlines, find_core(streamlines), visited(streamlines, space))


def measure_bundle(reference: Bundle, bundle: Bundle) -> list[Figure]:
    """All figures of one bundle; without a core on both sides only the streamlines are counted."""
    name, count, expected = bundle.name, len(bundle.streamlines), len(reference.streamlines)
    distances = dict.fromkeys((CORE, CORE_CUT, CORE_SYMMETRIC, DICE, RATIO), float("nan"))
    if reference.core is not None:
        distances[RATIO] = count / expected
        distances[DICE] = dice(reference.voxels, bundle.voxels)
    if reference.core is not None and bundle.core is not None:
        distances[CORE] = core_distance(reference.core, bundle.core)
        distances[CORE_CUT] = core_distance(reference.core, bundle.core, negligible_mm=NEGLIGIBLE_MM)
        distances[CORE_SYMMETRIC] = symmetric_core_distance(reference.core, bundle.core)
    return [*(Figure(name, metric, value) for metric, value in distances.items()), count_streamlines(bundle)]


def count_streamlines(bundle: Bundle) -> Figure:
    """What is said of every bundle, found or not."""
    return Figure(bundle.name, STREAMLINES, float(len(bundle.streamlines)))
