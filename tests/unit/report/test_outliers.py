"""Outliers: those of Iglewicz and Hoaglin, which one wild value cannot hide from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import median_abs_deviation

from tensorldm.report.outliers import FEWEST, OUTLIER_Z, robust_z


def test_scores_are_those_of_median_and_mad():
    values = [0.41, 0.39, 0.44, 0.40, 0.47, 0.12, 0.43]
    spread = median_abs_deviation(values, scale="normal")
    np.testing.assert_allclose(robust_z(values), (np.array(values) - np.median(values)) / spread, rtol=1e-4)


def test_a_wild_value_is_found_though_it_is_within_three_standard_deviations():
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 50.0]
    assert (50 - np.mean(values)) / np.std(values) < 3
    assert [abs(z) > OUTLIER_Z for z in robust_z(values)] == [False] * 5 + [True]


def test_where_most_values_are_equal_the_odd_one_is_still_found_and_nobody_else():
    z = robust_z([0.0] * 9 + [0.3])
    assert abs(z[-1]) > OUTLIER_Z
    assert z[:-1] == [0.0] * 9


def test_equal_values_have_no_outlier_and_missing_ones_no_score():
    assert robust_z([0.2, 0.2, None, 0.2, 0.2, 0.2]) == [0, 0, None, 0, 0, 0]


def test_a_few_values_are_not_judged():
    assert robust_z([1.0] * (FEWEST - 2) + [99.0]) == [None] * (FEWEST - 1)


@settings(max_examples=40)
@given(st.lists(st.integers(-50, 50), min_size=5), st.integers(1, 9), st.integers(-9, 9))
def test_units_and_offset_do_not_matter(values, factor, offset):
    moved = robust_z([float(factor * value + offset) for value in values])
    assert moved == pytest.approx(robust_z([float(value) for value in values]), abs=1e-9)
