"""The long table by method and measure, with its units: subjects, and the independent anatomies behind them.

Subjects made from one head are not independent, so every mean is first taken over the subjects of an anatomy. A subject
whose anatomy nobody tells counts as one of its own. [choice: independent-units]
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tensorldm.evaluation.summary import describe_anatomies
from tensorldm.evaluation.table import Row, methods_of, subjects_of

Key = tuple[str, str, str]
"""Method, quantity, metric."""


class Measured(NamedTuple):
    """A figure over the units of a table."""

    mean: float
    spread: float
    """Standard deviation over units; NaN for a single one."""
    units: int


@dataclass(frozen=True)
class IndexedTable:
    """Rows that can be asked for a figure without going through all of them."""

    rows: Sequence[Row]
    values: Mapping[Key, Mapping[str, float]]
    """By subject."""
    anatomies: Mapping[str, str]
    """Of every subject."""

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "IndexedTable":
        """Sort the rows of a long table into place."""
        values: dict[Key, dict[str, float]] = defaultdict(dict)
        for row in rows:
            values[row.method, row.quantity, row.metric][row.subject] = row.value
        return cls(rows, dict(values), {row.subject: row.anatomy or f"subject {row.subject}" for row in rows})

    @property
    def methods(self) -> list[str]:
        """In the order in which they first occur."""
        return methods_of(self.rows)

    @property
    def subjects(self) -> list[str]:
        """In the order in which they first occur."""
        return subjects_of(self.rows)

    @property
    def num_anatomies(self) -> int:
        """How many units are independent, at most."""
        return len(set(self.anatomies.values()))

    @property
    def has_repeated_anatomies(self) -> bool:
        """Whether some subjects share a head, so that tests over subjects count it more than once."""
        return self.num_anatomies < len(self.subjects)

    def covered(self, method: str) -> int:
        """How many subjects a method was measured on."""
        return len({row.subject for row in self.rows if row.method == method})

    def describe(self) -> str:
        """Subjects and independent anatomies, as every caption says them."""
        return describe_anatomies(self.rows)

    def by_subject(self, method: str, quantity: str, *, metric: str) -> Mapping[str, float]:
        """A figure of every subject that has it."""
        return self.values.get((method, quantity, metric), {})

    def by_anatomy(self, method: str, quantity: str, *, metric: str) -> dict[str, float]:
        """A figure of every anatomy: the mean over its subjects."""
        return self._over_anatomies(self.by_subject(method, quantity, metric=metric))

    def paired(
        self, methods: tuple[str, str], quantity: str, *, metric: str, by_anatomy: bool
    ) -> tuple[list[float], list[float]]:
        """A figure of two methods on the same units in the same order: those subjects alone that have both.

        An anatomy's mean is over the same subjects for both, so that a method of few subjects is not compared with
        another's mean over more of them.
        """
        first, second = (self.by_subject(method, quantity, metric=metric) for method in methods)
        shared = [subject for subject in first if subject in second]
        one, other = ({subject: values[subject] for subject in shared} for values in (first, second))
        if by_anatomy:
            one, other = self._over_anatomies(one), self._over_anatomies(other)
        return list(one.values()), list(other.values())

    def _over_anatomies(self, values: Mapping[str, float]) -> dict[str, float]:
        groups: dict[str, list[float]] = defaultdict(list)
        for subject, value in values.items():
            groups[self.anatomies[subject]].append(value)
        return {anatomy: statistics.fmean(each) for anatomy, each in groups.items()}

    def measured(self, method: str, quantity: str, *, metric: str) -> Measured | None:
        """Mean and standard deviation over anatomies; None where nothing was measured."""
        means = list(self.by_anatomy(method, quantity, metric=metric).values())
        if not means:
            return None
        finite = all(math.isfinite(value) for value in means)
        spread = statistics.stdev(means) if len(means) > 1 and finite else math.nan
        return Measured(statistics.fmean(means), spread, len(means))
