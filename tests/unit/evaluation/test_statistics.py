"""Paired tests, effects and corrections against SciPy and against values worked out by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from tensorldm.evaluation.statistics import compare_paired, holm, rank_biserial, stars


def test_the_t_test_is_students_by_hand():
    # Differences 1 2 3 4: mean 2.5, standard deviation sqrt(5/3), t = 2.5 / (sqrt(5/3) / 2) on 3 degrees of freedom.
    test = compare_paired([2.0, 4.0, 6.0, 8.0], [1.0, 2.0, 3.0, 4.0], higher_is_better=True)
    t = 2.5 / (math.sqrt(5 / 3) / 2)
    assert test.advantage == pytest.approx(2.5)
    assert test.cohens_dz == pytest.approx(2.5 / math.sqrt(5 / 3))
    assert test.p_t == pytest.approx(2 * stats.t.sf(t, 3), rel=1e-12)
    assert test.p_t == pytest.approx(0.0305, abs=5e-5)


def test_both_tests_are_scipys_on_any_pairs():
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(30, 1, 40), rng.normal(29.7, 1, 40)
    test = compare_paired(ours.tolist(), theirs.tolist(), higher_is_better=True)
    assert test.p_t == pytest.approx(stats.ttest_rel(ours, theirs).pvalue, rel=1e-10)
    assert test.p_wilcoxon == pytest.approx(stats.wilcoxon(ours, theirs).pvalue, rel=1e-10)


def test_wilcoxon_of_five_pairs_that_all_win_is_two_of_thirty_two():
    test = compare_paired([1.1, 2.2, 3.3, 4.4, 5.5], [1.0, 2.0, 3.0, 4.0, 5.0], higher_is_better=True)
    assert test.p_wilcoxon == pytest.approx(2 / 32)
    assert test.rank_biserial == 1.0


def test_less_is_better_turns_the_sign_of_effects_and_leaves_p_alone():
    ours, theirs = [0.3, 0.4, 0.35, 0.2], [0.5, 0.45, 0.6, 0.3]
    lower = compare_paired(ours, theirs, higher_is_better=False)
    higher = compare_paired(ours, theirs, higher_is_better=True)
    assert lower.advantage > 0 > higher.advantage
    assert lower.cohens_dz == pytest.approx(-higher.cohens_dz)
    assert lower.rank_biserial == 1.0
    assert higher.rank_biserial == -1.0
    assert lower.p_t == pytest.approx(higher.p_t)
    assert lower.p_wilcoxon == pytest.approx(higher.p_wilcoxon)


def test_rank_biserial_by_hand():
    assert rank_biserial(np.array([3.0, -1.0, 2.0])) == pytest.approx((3 + 2 - 1) / 6)
    assert rank_biserial(np.array([1.0, 2.0, -3.0])) == 0.0
    assert rank_biserial(np.array([0.0, 0.0, -3.0])) == -1.0
    assert rank_biserial(np.zeros(4)) == 0.0


def test_identical_methods_do_not_differ():
    test = compare_paired([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], higher_is_better=True)
    assert (test.p_t, test.p_wilcoxon, test.cohens_dz, test.rank_biserial) == (1.0, 1.0, 0.0, 0.0)


def test_the_same_advantage_in_every_pair_is_certain_and_not_an_accident_of_rounding():
    test = compare_paired([0.4, 0.5, 0.7, 0.9], [0.3, 0.4, 0.6, 0.8], higher_is_better=False)
    assert test.p_t == 0.0
    assert test.cohens_dz == -math.inf


def test_pairs_with_an_infinite_or_missing_value_are_left_out_and_counted():
    test = compare_paired([math.inf, 1.0, 2.0, 4.0, math.nan], [1.0, 0.5, 1.0, 2.0, 1.0], higher_is_better=True)
    assert (test.pairs, test.left_out) == (3, 2)
    assert test.advantage == pytest.approx((0.5 + 1 + 2) / 3)


def test_two_pairs_say_nothing():
    test = compare_paired([2.0, 3.0], [1.0, 1.0], higher_is_better=True)
    assert test.advantage == 1.5
    assert math.isnan(test.p_t)
    assert math.isnan(test.p_wilcoxon)


def test_holm_by_hand():
    # Sorted .005 .01 .03 .04 times 4 3 2 1 are .02 .03 .06 .04, and no corrected p is below the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_test_that_could_not_be_made_does_not_count_against_the_others():
    corrected = holm([0.02, math.nan, 0.01])
    assert corrected[0] == pytest.approx(0.02)
    assert math.isnan(corrected[1])
    assert corrected[2] == pytest.approx(0.02)


def test_holm_is_never_more_lenient_than_no_correction_nor_stricter_than_bonferroni():
    p = np.random.default_rng(1).uniform(size=30)
    corrected = np.array(holm(p.tolist()))
    assert (corrected >= p).all()
    assert (corrected <= np.minimum(1, 30 * p) + 1e-12).all()


@pytest.mark.parametrize(
    ("p", "mark"),
    [(9e-4, "***"), (1e-3, "**"), (9e-3, "**"), (1e-2, "*"), (0.049, "*"), (0.05, "0.050 (n.s.)"), (math.nan, "–")],
)
def test_stars_are_the_papers(p, mark):
    assert stars(p) == mark
