"""Subjects of one head are not independent: every mean and every test counts anatomies."""

import math
import statistics

import numpy as np
import pytest

from tensorldm.evaluation.indexed import IndexedTable
from tensorldm.evaluation.statistics import compare_paired
from tensorldm.evaluation.table import Row


def rows(values: dict[str, dict[str, float]], heads: dict[str, str]) -> list[Row]:
    return [
        Row(method, subject, "tensor", "lem", value, anatomy=heads.get(subject, ""))
        for method, each in values.items()
        for subject, value in each.items()
    ]


HEADS = {"a1": "anna", "a2": "anna", "a3": "anna", "b1": "berta"}


def test_an_anatomy_counts_once_however_many_subjects_were_made_from_it():
    table = IndexedTable.of(rows({"ade": {"a1": 1.0, "a2": 2.0, "a3": 3.0, "b1": 10.0}}, HEADS))
    found = table.measured("ade", "tensor", metric="lem")
    assert found is not None
    assert found.mean == pytest.approx((2 + 10) / 2)
    assert found.spread == pytest.approx(statistics.stdev([2, 10]))
    assert found.units == 2
    assert table.has_repeated_anatomies


def test_subjects_that_nobody_tells_the_head_of_count_each_as_one():
    table = IndexedTable.of(rows({"ade": {"x": 1.0, "y": 3.0}}, {}))
    assert table.by_anatomy("ade", "tensor", metric="lem") == {"subject x": 1.0, "subject y": 3.0}
    assert not table.has_repeated_anatomies


def test_what_was_not_measured_is_none_and_a_single_unit_has_no_spread():
    table = IndexedTable.of(rows({"ade": {"b1": 1.0}}, HEADS))
    assert table.measured("ade", "tensor", metric="psnr_db") is None
    found = table.measured("ade", "tensor", metric="lem")
    assert found is not None
    assert math.isnan(found.spread)


def test_infinite_figures_stay_infinite_without_a_spread():
    found = IndexedTable.of(rows({"ade": {"a1": math.inf, "b1": 1.0}}, HEADS)).measured("ade", "tensor", metric="lem")
    assert found is not None
    assert math.isinf(found.mean)
    assert math.isnan(found.spread)


def test_a_method_of_few_subjects_is_paired_with_the_same_subjects_of_the_other():
    """Of anna's three warps the slow method has one: against the mean of all three it would look better by 1."""
    values = {"quick": {"a1": 1.0, "a2": 2.0, "a3": 3.0, "b1": 10.0}, "slow": {"a1": 1.0, "b1": 9.0}}
    table = IndexedTable.of(rows(values, HEADS))
    pairs = table.paired(("quick", "slow"), "tensor", metric="lem", by_anatomy=True)
    assert pairs == ([1.0, 10.0], [1.0, 9.0])
    assert table.paired(("slow", "none"), "tensor", metric="lem", by_anatomy=True) == ([], [])
    whole = table.paired(("quick", "quick"), "tensor", metric="lem", by_anatomy=False)
    assert whole == ([1.0, 2.0, 3.0, 10.0],) * 2


def test_warps_of_few_heads_make_a_difference_look_more_certain_than_it_is():
    """Four heads with ten warps each: tested as forty subjects, the chance of the four heads is hidden."""
    rng = np.random.default_rng(4)
    heads = {f"h{h}w{w}": f"h{h}" for h in range(4) for w in range(10)}
    luck = dict(zip(("h0", "h1", "h2", "h3"), (0.9, 0.1, 1.1, -0.2), strict=True))
    ours = {subject: luck[head] + rng.normal(scale=0.05) for subject, head in heads.items()}
    table = IndexedTable.of(rows({"ours": ours, "theirs": dict.fromkeys(heads, 0.0)}, heads))

    def p(by):
        first, second = by("ours", "tensor", metric="lem"), by("theirs", "tensor", metric="lem")
        return compare_paired(list(first.values()), list(second.values()), higher_is_better=True).p_t

    assert p(table.by_subject) < 1e-3
    assert p(table.by_anatomy) > 0.1
