"""Is a difference between two methods more than chance, and how large is it: paired tests, effect sizes, corrections.

A pair is one subject, or one anatomy, measured with both methods. The tests assume that pairs are independent, which
scans of one head are not: who calls says what a pair is, and tables mark the pairs that are not independent.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import stats

STARS: Final = ((1e-3, "***"), (1e-2, "**"), (0.05, "*"))
"""The paper's marks: below the number, the mark."""
ALPHA: Final = 0.05
LEAST_PAIRS: Final = 3
"""With two pairs a t-test has one degree of freedom, and Wilcoxon's smallest p is 0.5: neither says anything."""
CONSTANT: Final = 1e-12
"""Differences whose spread is this share of their size differ by rounding alone."""


@dataclass(frozen=True)
class PairedTest:
    """Ours against theirs; positive differences and effects mean that ours is better."""

    pairs: int
    left_out: int
    """Pairs with an infinite or missing value, which no test can take."""
    advantage: float
    """Mean difference, in the measure's own unit."""
    p_t: float
    """Two-sided paired t-test."""
    p_wilcoxon: float
    """Two-sided Wilcoxon signed-rank test."""
    cohens_dz: float
    """Mean difference over the standard deviation of the differences."""
    rank_biserial: float
    """From -1 (worse in every pair) to 1 (better in every pair)."""


def compare_paired(ours: Sequence[float], theirs: Sequence[float], *, higher_is_better: bool) -> PairedTest:
    """Paired tests of two methods on the same units, in the same order; NaN where there are too few pairs."""
    assert len(ours) == len(theirs), "a pair has two members"
    first, second = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    usable = np.isfinite(first) & np.isfinite(second)
    differences = (first - second)[usable] * (1 if higher_is_better else -1)
    pairs, left_out = len(differences), int((~usable).sum())
    advantage = float(differences.mean()) if pairs else math.nan
    if pairs < LEAST_PAIRS:
        return PairedTest(pairs, left_out, advantage, math.nan, math.nan, math.nan, math.nan)
    return PairedTest(
        pairs=pairs,
        left_out=left_out,
        advantage=advantage,
        p_t=_t_test(differences),
        p_wilcoxon=_wilcoxon(differences),
        cohens_dz=_cohens_dz(differences),
        rank_biserial=rank_biserial(differences),
    )


def rank_biserial(differences: Float[ndarray, " n"]) -> float:
    """Matched-pairs rank-biserial correlation: (W+ - W-) / (W+ + W-) of Wilcoxon's rank sums; zeros are dropped."""
    kept = differences[differences != 0]
    if len(kept) == 0:
        return 0.0
    ranks = stats.rankdata(np.abs(kept))
    return float((ranks * np.sign(kept)).sum() / ranks.sum())


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction for many tests; a p that is not a number stays so and is not counted as a test."""
    corrected = [math.nan] * len(p_values)
    tested = sorted((p, index) for index, p in enumerate(p_values) if not math.isnan(p))
    running = 0.0
    for step, (p, index) in enumerate(tested):
        running = max(running, min(1.0, (len(tested) - step) * p))
        corrected[index] = running
    return corrected


def stars(p: float) -> str:
    """A p-value as the paper shows it: stars, the number where it is not significant, a dash where there is none."""
    if math.isnan(p):
        return "–"
    for limit, mark in STARS:
        if p < limit:
            return mark
    return f"{p:.3f} (n.s.)"


def _t_test(differences: Float[ndarray, " n"]) -> float:
    if _is_constant(differences):
        return 1.0 if _is_zero(differences) else 0.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _wilcoxon(differences: Float[ndarray, " n"]) -> float:
    return 1.0 if _is_zero(differences) else float(stats.wilcoxon(differences).pvalue)


def _cohens_dz(differences: Float[ndarray, " n"]) -> float:
    mean = float(differences.mean())
    if _is_constant(differences):
        return 0.0 if _is_zero(differences) else math.copysign(math.inf, mean)
    return mean / float(differences.std(ddof=1))


def _is_constant(differences: Float[ndarray, " n"]) -> bool:
    return float(differences.std(ddof=1)) <= CONSTANT * float(np.abs(differences).max())


def _is_zero(differences: Float[ndarray, " n"]) -> bool:
    return not bool(differences.any())
