"""How often intervals hold the truth, and how wide they are: by quantity, level, region and truth.

Voxels of all subjects are pooled; beside it stand the lowest and highest coverage of a single subject, because the
next scan is one subject and not the pool.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final, NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from tensorldm.cohort.anatomy import TISSUES
from tensorldm.reconstruct.calibration import Judged, Quantity
from tensorldm.reconstruct.uncertainty import LEVEL, Calibration

MASK: Final = "mask"
REAL: Final = "real scan "
"""Before the name of a scan, where a split would stand."""
THREE, MORE = "3 directions", "4 or more directions"
JUDGED: Final[tuple[tuple[Quantity, float], ...]] = (
    ("fa", 0.9),
    ("md", 0.9),
    ("v1", LEVEL),
    ("fa", LEVEL),
    ("md", LEVEL),
)
"""What is promised of FA and MD at 90 % and of v1 at 95 %, then the intervals as they are written."""
TISSUE_GOAL: Final = (0.75, 0.98)
GOALS: Final[Mapping[tuple[Quantity, float, str], tuple[float, float]]] = {
    ("fa", 0.9, MASK): (0.85, 0.95),
    ("md", 0.9, MASK): (0.85, 0.95),
    ("v1", LEVEL, MASK): (0.90, 0.98),
    **{(quantity, 0.9, tissue): TISSUE_GOAL for quantity in ("fa", "md") for tissue in TISSUES},
}
"""Coverage of the clean tensor on test anatomies that a shipped model has to have."""
LEAST_VOXELS: Final = 20
"""Of a region; a share of fewer says nothing."""


@dataclass(frozen=True, eq=False)
class Observed:
    """One subject: the samples judged by each truth, and where each voxel belongs."""

    name: str
    anatomy: str
    num_directions: int
    judged: Mapping[str, Judged]
    """By the truth's name."""
    tissue: Int[ndarray, " v"]

    def within(self, region: str) -> Bool[ndarray, " v"]:
        """The voxels of a region."""
        if region in TISSUES:
            return np.asarray(self.tissue == TISSUES.index(region))
        wanted = region == MASK or (region == THREE) == (self.num_directions == 3)
        return np.full(self.tissue.shape, wanted)


@dataclass(frozen=True)
class CoverageRow:
    """One figure; widths are from end to end, in the quantity's unit (v1: half the opening, degrees)."""

    split: str
    truth: str
    quantity: str
    level: float
    region: str
    subjects: int
    voxels: int
    covered_before: float
    covered: float
    lowest_subject: float
    highest_subject: float
    width_before: float
    width: float

    @property
    def goal(self) -> tuple[float, float] | None:
        """What is promised of this figure, on test anatomies and the clean tensor."""
        if (self.split, self.truth) != ("test", "clean"):
            return None
        return next(
            (goal for key, goal in GOALS.items() if key == (self.quantity, self.level, self.region)),
            None,
        )

    @property
    def met(self) -> bool:
        """Whether the promise is kept, where there is one."""
        return self.goal is None or self.goal[0] <= self.covered <= self.goal[1]


class _Tally(NamedTuple):
    """One quantity of one subject in one region: how many voxels, how many of them covered, widths added up."""

    voxels: int
    covered_before: int
    covered: int
    width_before: float
    width: float


def coverage_rows(split: str, subjects: Sequence[Observed], calibration: Calibration) -> list[CoverageRow]:
    """Every figure of a split, before the factors and with them."""
    truths = dict.fromkeys(truth for subject in subjects for truth in subject.judged)
    counts = {subject.num_directions == 3 for subject in subjects}
    regions = (MASK, *reversed(TISSUES), *((THREE, MORE) if len(counts) == 2 else ()))
    rows = []
    for truth in truths:
        for quantity, level in JUDGED:
            tallies = [
                _tallies(subject, truth, quantity, level=level, calibration=calibration, regions=regions)
                for subject in subjects
            ]
            for region in regions:
                found = [each[region] for each in tallies if each[region].voxels >= LEAST_VOXELS]
                if found:
                    rows.append(_row((split, truth, quantity, level, region), found))
    return rows


def _tallies(
    subject: Observed,
    truth: str,
    quantity: Quantity,
    *,
    level: float,
    calibration: Calibration,
    regions: Sequence[str],
) -> dict[str, _Tally]:
    judged = subject.judged[truth]
    counted = judged.counts(quantity)
    covered = [judged.covered(quantity, factors, level=level) for factors in (Calibration(), calibration)]
    widths = [judged.widths(quantity, factors, level=level) for factors in (Calibration(), calibration)]
    tallies = {}
    for region in regions:
        where = subject.within(region) & counted
        tallies[region] = _Tally(
            int(where.sum()),
            *(int(each[where].sum()) for each in covered),
            *(float(each[where].sum(dtype=np.float64)) for each in widths),
        )
    return tallies


def _row(key: tuple[str, str, str, float, str], tallies: Sequence[_Tally]) -> CoverageRow:
    voxels = sum(each.voxels for each in tallies)
    by_subject = [each.covered / each.voxels for each in tallies]
    return CoverageRow(
        *key,
        subjects=len(tallies),
        voxels=voxels,
        covered_before=sum(each.covered_before for each in tallies) / voxels,
        covered=sum(each.covered for each in tallies) / voxels,
        lowest_subject=min(by_subject),
        highest_subject=max(by_subject),
        width_before=sum(each.width_before for each in tallies) / voxels,
        width=sum(each.width for each in tallies) / voxels,
    )


def to_csv(rows: Sequence[CoverageRow]) -> str:
    """One line a figure."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [field.name for field in fields(CoverageRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return stream.getvalue()
