"""Tables 1, 2, 3, 5, 6 and 7 from long tables written by hand, compared with hand values and SciPy."""

import math
import statistics

import pytest
from scipy import stats

from tensorldm.evaluation.measures import COMPONENT_NAMES, MAP_NAMES
from tensorldm.evaluation.rendering import to_markdown
from tensorldm.evaluation.table import Row
from tensorldm.experiments.tables import accuracy, significance
from tensorldm.experiments.tables.making import build_tables, write_tables

HEADS = {"s1": "h1", "s2": "h1", "s3": "h2", "s4": "h3", "s5": "h4"}
LEM = {
    "ade": {"s1": 0.60, "s2": 0.62, "s3": 0.70, "s4": 0.66, "s5": 0.58},
    "minimum-norm": {"s1": 0.50, "s2": 0.54, "s3": 0.61, "s4": 0.55, "s5": 0.52},
    "ols-12": {"s1": 0.10, "s2": 0.12, "s3": 0.11, "s4": 0.10, "s5": 0.13},
}


def long_table() -> list[Row]:
    rows = [
        Row("reference", subject, "tensor", "spd_violations_percent", 1.0 + index, anatomy=head)
        for index, (subject, head) in enumerate(HEADS.items())
    ]
    for method, values in LEM.items():
        for subject, value in values.items():
            head = HEADS[subject]
            rows.append(Row(method, subject, "tensor", "lem", value, head))
            rows.append(Row(method, subject, "tensor", "lem_floor_1e-07", value + 0.1, head))
            rows.append(Row(method, subject, "tensor", "lem_floor_1e-05", value - 0.05, head))
            rows.append(Row(method, subject, "tensor", "off_diagonal_lem", value / 2, head))
            rows.append(Row(method, subject, "tensor", "v1_median_degrees", 40 * value, head))
            rows.append(Row(method, subject, "tensor", "spd_violations_percent", 0.0, head))
            for name in (*COMPONENT_NAMES, *MAP_NAMES):
                rows.append(Row(method, subject, name, "psnr_db", 30 - 10 * value, head))
                rows.append(Row(method, subject, name, "nmse", value / 10, head))
                rows.append(Row(method, subject, name, "ssim", 1 - value / 10, head))
    return rows


def head_means(method: str) -> list[float]:
    values = LEM[method]
    return [(values["s1"] + values["s2"]) / 2, values["s3"], values["s4"], values["s5"]]


@pytest.fixture(scope="module")
def study(store_in, tmp_path_factory):
    return store_in(tmp_path_factory.mktemp("study"), {"accuracy": long_table()})


@pytest.fixture(scope="module")
def made(study):
    """The tables of the study by number."""
    return {each.number: each for each in build_tables(study)}


def table(stored, number):
    return next(each for each in build_tables(stored) if each.number == number)


def cells(block) -> dict[tuple[str, str], object]:
    return {
        (line.label, column.of or column.heading, column.published): cell
        for line in block.lines
        for column, cell in zip(block.columns, line.cells, strict=True)
    }


def test_a_cell_is_mean_and_deviation_over_heads_and_the_paper_stands_beside(made):
    whole = next(each for each in made[2].blocks if each.title == "Whole tensors")
    found = cells(whole)["ade", "LEM", False]
    assert found.value == pytest.approx(statistics.fmean(head_means("ade")))
    assert found.spread == pytest.approx(statistics.stdev(head_means("ade")))
    assert cells(whole)["ade", "LEM", True].value == 0.65


def test_best_is_ours_and_the_fit_from_more_directions_is_not_ranked(made):
    text = to_markdown(made[2])
    for method, form in (("minimum-norm", "**{}**"), ("ade", "<u>{}</u>"), ("ols-12", "{}")):
        means = head_means(method)
        figure = f"{statistics.fmean(means):.3f} ± {statistics.stdev(means):.3f}"
        assert f"| {method} | {form.format(figure)} |" in text


def test_every_caption_tells_subjects_and_independent_anatomies_and_every_paper_column_its_dataset(study):
    for each in build_tables(study):
        words = " ".join(each.caption)
        assert "5 subjects of 4 independent anatomies" in words, each.slug
        if any(column.published for block in each.blocks for column in block.columns):
            assert "another dataset" in words, each.slug


def test_the_conditions_of_a_comparison_and_of_its_methods_stand_in_the_caption(made):
    words = " ".join(made[1].caption)
    assert "same minutes" in words
    assert "ols-12: twelve directions" in words


def test_means_per_anatomy_are_shown(made):
    block = made[2].blocks[-1]
    assert block.title == "LEM by anatomy"
    assert cells(block)["h1", "ade", False].value == pytest.approx(0.61)
    assert [line.label for line in block.lines] == ["h1", "h2", "h3", "h4"]


def test_paired_tests_are_scipys_over_anatomies(made):
    effects = next(each for each in made[5].blocks if each.title == "Effects")
    found = cells(effects)
    ours, theirs = head_means("minimum-norm"), head_means("ade")
    p = stats.ttest_rel(ours, theirs).pvalue
    assert found["LEM vs ade", "p (t)", False].value == pytest.approx(p)
    assert found["LEM vs ade", "p (Wilcoxon)", False].value == pytest.approx(stats.wilcoxon(ours, theirs).pvalue)
    gains = [b - a for a, b in zip(ours, theirs, strict=True)]
    assert found["LEM vs ade", "d_z", False].value == pytest.approx(statistics.fmean(gains) / statistics.stdev(gains))
    assert found["LEM vs ade", "pairs", False].value == 4


def test_holm_counts_every_test_of_the_table(study):
    index = study.table("accuracy", "virtual")
    tests = significance.paired_tests(index, "minimum-norm", others=["ade", "ols-12"], by_anatomy=True)
    made = [each for each in tests.values() if not math.isnan(each.test.p_t)]
    least = min(made, key=lambda each: each.test.p_t)
    assert least.p_holm == pytest.approx(min(1.0, least.test.p_t * len(made)))


def test_losing_is_said(made):
    first = made[5].blocks[0]
    assert cells(first)["LEM", "ols-12", False].text.endswith("worse")
    assert "worse" not in cells(first)["LEM", "ade", False].text


def test_tests_over_subjects_that_share_a_head_are_marked_as_not_independent(made):
    block = next(each for each in made[5].blocks if "over subjects" in each.title and not each.brief)
    assert "not independent" in block.title
    assert cells(block)["LEM", "ade", False].text.endswith("†")
    assert any(sentence.startswith("†") for sentence in made[5].caption)


def test_without_shared_heads_nothing_is_marked(stored):
    alone = [Row(row.method, row.subject, row.quantity, row.metric, row.value, row.subject) for row in long_table()]
    made = table(stored({"accuracy": alone}), 5)
    assert not any("†" in block.title for block in made.blocks)


def test_two_anatomies_give_no_p_and_the_table_says_so(stored):
    few = [row for row in long_table() if row.subject in ("s1", "s2", "s3")]
    made = table(stored({"accuracy": few}), 5)
    assert "no independent test" in " ".join(made.caption)
    shown = [block for block in made.blocks if not block.brief]
    assert [block.title.partition(" †")[0] for block in shown] == ["Paired t-test over subjects", "Effects"]
    assert math.isnan(cells(shown[1])["LEM vs ade", "p (t)", False].value)
    assert cells(shown[1])["LEM vs ade", "advantage", False].value == pytest.approx((0.09 + 0.09) / 2)


def test_violations_start_with_the_reference_and_call_nobody_best(made):
    (block,) = made[3].blocks
    assert block.lines[0].label == "reference"
    assert block.lines[0].cells[0].value == pytest.approx(statistics.fmean([1.5, 3, 4, 5]))
    assert block.lines[0].cells[1].value == 1.40
    assert not any(place for places in block.places() for place in places)


def test_the_floor_table_says_whether_the_order_of_methods_depends_on_it(stored):
    rows = long_table()
    assert any("the same at every floor" in words for words in table(stored({"accuracy": rows}), 7).caption)
    swapped = [
        Row(row.method, row.subject, row.quantity, row.metric, row.value + 0.5, row.anatomy)
        if (row.method, row.metric) == ("minimum-norm", "lem_floor_1e-05")
        else row
        for row in rows
    ]
    words = " ".join(table(stored({"accuracy": swapped}), 7).caption)
    assert "The order changes: at 1e-07 minimum-norm < ade" in words
    assert "at 1e-05 ade < minimum-norm" in words


def test_the_floor_table_calls_nobody_best_for_it_has_the_methods_of_all_comparisons(made):
    """A product that was trained longer stands beside rivals with which it is not compared."""
    assert not any(place for block in made[7].blocks for places in block.places() for place in places)
    assert not any("best bold" in words for words in made[7].caption)


def test_a_method_that_was_measured_on_fewer_subjects_says_so_and_is_tested_on_those(stored):
    fewer = [row for row in long_table() if row.method != "ade" or row.subject in ("s3", "s4", "s5")]
    study = stored({"accuracy": fewer})
    whole = next(each for each in table(study, 2).blocks if each.title == "Whole tensors")
    assert [line.label for line in whole.lines] == ["ade (3 of 5 subjects)", "ols-12", "minimum-norm"]
    effects = next(each for each in table(study, 5).blocks if each.title == "Effects")
    assert cells(effects)["LEM vs ade", "pairs", False].value == 3
    assert cells(effects)["LEM vs ols-12", "pairs", False].value == 4


def test_ablations_have_their_own_table_with_ours_first(stored):
    comparisons = {"parts": {"title": "ablations", "kind": "ablations", "ours": "minimum-norm", "methods": ["ade"]}}
    study = stored({"accuracy": long_table()}, comparisons=comparisons)
    made = table(study, 6)
    assert [line.label for line in made.blocks[0].lines] == ["minimum-norm", "ade"]
    assert {block.title for block in made.blocks} >= {"PSNR of components, dB", "PSNR of maps, dB"}
    assert not any(each.number in (1, 2) for each in build_tables(study))


def test_every_table_is_written_in_three_forms_and_in_one_document(study, tmp_path):
    everything = build_tables(study)
    write_tables(study, everything, tmp_path / "tables")
    for each in everything:
        for suffix in (".md", ".csv", ".tex"):
            assert (tmp_path / "tables" / f"{each.slug}{suffix}").stat().st_size > 100
    document = (tmp_path / "tables" / "tables.md").read_text()
    assert "stopped before its end" in document
    assert all(f"### Table {number}." in document for number in (1, 2, 3, 5, 7))
    assert "PSNR and SSIM range" in document
    assert "methods:" in document


def test_a_study_without_results_has_no_tables(stored):
    study = stored({})
    assert build_tables(study) == []
    assert list(accuracy.tables(study)) == []
