"""Streamlines as one long list of points and where each begins: millions of points without millions of objects."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

Points = Float[ndarray, "points 3"]


@dataclass(frozen=True, eq=False)
class Streamlines:
    """World coordinates in mm; streamline i has the points ``offsets[i]`` up to ``offsets[i + 1]``."""

    points: Points
    offsets: Int[ndarray, " ends"]

    def __post_init__(self) -> None:
        whole = self.offsets[0] == 0 and self.offsets[-1] == len(self.points) and (np.diff(self.offsets) >= 0).all()
        if not whole:
            raise ValueError(f"offsets do not cut {len(self.points)} points into streamlines")

    @classmethod
    def of(cls, lines: Sequence[Float[ndarray, "_ 3"]]) -> "Streamlines":
        """From separate arrays."""
        counts = [len(line) for line in lines]
        points = np.concatenate([np.zeros((0, 3), np.float32), *lines]).astype(np.float32)
        return cls(points, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Points]:
        for start, stop in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield self.points[start:stop]

    @property
    def counts(self) -> Int[ndarray, " lines"]:
        """Points of each."""
        return np.diff(self.offsets)

    @property
    def lengths_mm(self) -> Float[ndarray, " lines"]:
        """Length of each along its course."""
        along = self._along()
        starts, stops = self.offsets[:-1], self.offsets[1:]
        lengths = np.zeros(len(self))
        some = stops > starts
        lengths[some] = along[stops[some] - 1] - along[starts[some]]
        return lengths

    @property
    def owners(self) -> Int[ndarray, " points"]:
        """Which streamline each point belongs to."""
        return np.repeat(np.arange(len(self)), self.counts)

    def chosen(self, keep: Bool[ndarray, " lines"]) -> "Streamlines":
        """Only these, in their order."""
        offsets = np.concatenate([[0], np.cumsum(self.counts[keep], dtype=np.int64)])
        return Streamlines(self.points[np.repeat(keep, self.counts)], offsets)

    def moved(self, points: Points) -> "Streamlines":
        """The same streamlines through other points."""
        return Streamlines(points, self.offsets)

    def reversed(self) -> "Streamlines":
        """Every streamline from its end to its beginning."""
        starts, stops, owners = self.offsets[:-1], self.offsets[1:], self.owners
        return self.moved(self.points[starts[owners] + stops[owners] - 1 - np.arange(len(self.points))])

    def resampled(self, count: int) -> Float[ndarray, "lines count 3"]:
        """Every streamline through ``count`` points at even distances along it; each needs two points or more."""
        if len(self) and self.counts.min() < 2:
            raise ValueError("a streamline of fewer than two points has no course")
        along, starts, stops = self._along(), self.offsets[:-1], self.offsets[1:]
        first, last = along[starts], along[stops - 1]
        targets = first[:, None] + (last - first)[:, None] * np.linspace(0, 1, count)
        # Between the streamlines ``along`` makes a jump, so the search never leaves its own.
        upper = np.searchsorted(along, targets.ravel(), side="left").reshape(targets.shape)
        upper = np.clip(upper, starts[:, None] + 1, stops[:, None] - 1)
        step = along[upper] - along[upper - 1]
        share = np.clip((targets - along[upper - 1]) / np.where(step > 0, step, 1), 0, 1)[..., None]
        points = self.points.astype(np.float64)
        return np.asarray(points[upper - 1] * (1 - share) + points[upper] * share)

    def _along(self) -> Float[ndarray, " points"]:
        """Distance along the whole list, with a jump of a metre from one streamline to the next."""
        steps = np.linalg.norm(np.diff(self.points.astype(np.float64), axis=0), axis=1)
        inner = self.offsets[1:-1]
        steps[inner[(inner > 0) & (inner < len(self.points))] - 1] = 1000.0
        return np.concatenate([[0.0], np.cumsum(steps)])[: len(self.points)]
