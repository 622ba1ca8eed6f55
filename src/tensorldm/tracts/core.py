"""The core of a bundle, one smooth curve for hundreds of streamlines, and how far two cores are apart [E12].

Streamlines are resampled to the same number of points and turned the same way round; the centroids of their
cross-sections are smoothed by a cubic, and the core is 100 points at even distances on it [choice: core-distance].
"""

from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.spatial.distance import cdist

from tensorldm.tracts.streamlines import Streamlines

CORE_POINTS: Final = 100
"""K and M of [E12]."""
DEGREE: Final = 3
NEGLIGIBLE_MM: Final = 1.0
"""Half a voxel of 2 mm: nearest-point distances below it count as 0 in the second form of the measure."""
FEWEST_STREAMLINES: Final = 10
"""Of fewer a core would be chance: the bundle counts as not found."""
MOST_ROUNDS: Final = 10

Lines = Float[ndarray, "lines count 3"]
Core = Float[ndarray, "_ 3"]


def find_core(streamlines: Streamlines) -> Float[ndarray, "100 3"] | None:
    """The core in world mm, or None where there are too few streamlines for one. Its direction means nothing."""
    if len(streamlines) < FEWEST_STREAMLINES:
        return None
    centroids = align(streamlines.resampled(CORE_POINTS)).mean(axis=0)
    return smooth(centroids)


def align(lines: Lines) -> Lines:
    """Every line turned round where that brings it nearer to the others.

    The first model is the line of middle length, so neither the order of the lines nor the way they came matters.
    """
    lengths = np.linalg.norm(np.diff(lines, axis=1), axis=2).sum(axis=1)
    model = lines[np.argsort(lengths, kind="stable")[len(lines) // 2]]
    for _ in range(MOST_ROUNDS):
        direct, turned = (np.linalg.norm(each - model, axis=2).mean(axis=1) for each in (lines, lines[:, ::-1]))
        flip = turned < direct
        lines = np.where(flip[:, None, None], lines[:, ::-1], lines)
        model = lines.mean(axis=0)
        if not flip.any():
            break
    return lines


def smooth(centroids: Core) -> Float[ndarray, "100 3"]:
    """A cubic in the distance along the centroids, at even distances along itself."""
    steps = np.linalg.norm(np.diff(centroids, axis=0), axis=1)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    at = 2 * along / max(along[-1], np.finfo(float).tiny) - 1
    coefficients = np.polynomial.legendre.legfit(at, centroids, DEGREE)
    fine = np.polynomial.legendre.legval(np.linspace(-1, 1, 20 * CORE_POINTS), coefficients).T
    return np.asarray(Streamlines(fine, np.array([0, len(fine)])).resampled(CORE_POINTS)[0])


def core_distance(reference: Core, reconstructed: Core, *, negligible_mm: float = 0.0) -> float:
    """Mean over the reconstructed core's points of the distance to the nearest of the reference's, in mm [E12].

    Distances below ``negligible_mm`` count as 0.
    """
    nearest = cdist(reconstructed, reference).min(axis=1)
    return float(np.where(nearest < negligible_mm, 0.0, nearest).mean())


def symmetric_core_distance(reference: Core, reconstructed: Core) -> float:
    """Mean of [E12] both ways: a core that covers half of the reference is near to it, but not the other way."""
    return (core_distance(reference, reconstructed) + core_distance(reconstructed, reference)) / 2
