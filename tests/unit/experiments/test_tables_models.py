"""Tables 4, 8, 9, 10 and 11 from long tables written by hand."""

import statistics

import pytest

from tensorldm.components import COMPONENTS
from tensorldm.evaluation.table import Row
from tensorldm.experiments.runtime import EXTRAPOLATED, SAMPLE, TOTAL, extrapolated
from tensorldm.experiments.tables.making import build_tables


def only(stored_study, number):
    return [each for each in build_tables(stored_study) if each.number == number]


def cells(block) -> dict[tuple[str, str], object]:
    return {
        (line.label, column.of or column.heading): cell
        for line in block.lines
        for column, cell in zip(block.columns, line.cells, strict=True)
        if not column.published
    }


def runtime_rows(label: str, **values: float) -> list[Row]:
    return [Row(label, "s1", "NVIDIA H200", f"{name}_seconds", value, "h1") for name, value in values.items()]


def test_runtime_has_a_line_for_each_method_step_count_and_device_with_the_papers_beside(stored):
    rows = runtime_rows("tensorldm@steps=250", encode=0.5, sample=10.0, decode=0.25, total=11.0)
    rows += [Row("tensorldm@steps=250", "s1", "NVIDIA H200", "total_seconds_sd", 0.125, "h1")]
    rows += [Row("ade", "s1", "AMD EPYC, 2 threads", "total_seconds", 0.01, "h1")]
    (made,) = only(stored({"runtime": rows}), 4)
    lines = {line.label: line.cells for line in made.blocks[0].lines}
    whole = lines["tensorldm, 250 steps, NVIDIA H200"]
    assert [cell.value for cell in whole[:4]] == [0.5, 10.0, 0.25, 11.0]
    assert whole[3].spread == 0.125
    assert whole[4].text == "123 (A6000), 32.7 (RTX 6000 Ada)"
    assert lines["ade, AMD EPYC, 2 threads"][0].value is None


def test_the_papers_seconds_stand_beside_a_rival_that_draws_though_it_does_not_say_the_steps(stored):
    rows = runtime_rows("ldm@steps=25", total=1.0) + runtime_rows("superdti", total=0.1)
    (made,) = only(stored({"runtime": rows}), 4)
    assert [line.cells[4].text for line in made.blocks[0].lines] == ["23.6 (A6000), steps not said", "10.9 (A6000)"]


def test_time_is_extrapolated_by_the_steps_alone_and_marked():
    found = extrapolated({TOTAL: 8.0, SAMPLE: 5.0, "decode_seconds": 2.0}, each=0.5, further=100)
    assert found == {TOTAL: 58.0, SAMPLE: 55.0, "decode_seconds": 2.0, EXTRAPOLATED: 1.0}


def test_an_extrapolated_time_is_marked_in_the_table_and_a_part_without_steps_is_not(stored):
    rows = runtime_rows("diffdti@steps=1000", encode=1.0, sample=500.0, total=501.0)
    rows += [Row("diffdti@steps=1000", "s1", "NVIDIA H200", EXTRAPOLATED, 1.0, "h1")]
    (made,) = only(stored({"runtime": rows}), 4)
    (line,) = made.blocks[0].lines
    assert [cell.mark for cell in line.cells[:4]] == ["", "‡", "", "‡"]
    assert any(sentence.startswith("‡") for sentence in made.caption)


def test_the_probe_shows_features_and_latents_beside_the_paper(stored):
    rows = [
        Row("tensorldm", f"s{i}", kind, metric, value + i / 100, f"h{i}")
        for i in range(3)
        for kind, value in (("features", 0.5), ("latents", 0.1))
        for metric in ("r2_voxel", "r2_cell")
    ]
    (made,) = only(stored({"probe": rows}), 8)
    first, second = made.blocks[0].lines
    assert first.cells[0].value == pytest.approx(0.51)
    assert [line.cells[1].value for line in (first, second)] == [0.61, 0.08]
    assert "fitted on all anatomies but one" in " ".join(made.caption)


def test_routing_averages_groups_of_components(stored):
    rows = [
        Row("tensorldm", "s1", f"D{name}", f"weight_{volume}", share, "h1")
        for d, name in enumerate(COMPONENTS)
        for volume, share in zip(("b0", "x", "y", "z"), (0.1, 0.2, 0.4 if d < 3 else 0.3, 0.3), strict=True)
    ]
    (made,) = only(stored({"routing": rows}), 9)
    found = cells(made.blocks[0])
    assert found["mean of the diagonal components", "share of y"].value == pytest.approx(0.4)
    assert found["mean of the off-diagonal components", "share of y"].value == pytest.approx(0.3)
    words = " ".join(made.caption)
    assert "0.40 on y, 1.23 nats" in words
    assert "1.39 nats" in words


def test_spread_over_seeds_is_told_for_the_study_and_for_a_subject(stored):
    values = {0: (0.30, 0.50), 1: (0.34, 0.46), 2: (0.32, 0.51)}
    rows = [
        Row(f"tensorldm@seed={seed}", f"s{i}", "tensor", "lem", value, f"h{i}")
        for seed, pair in values.items()
        for i, value in enumerate(pair)
    ]
    (made,) = only(stored({"seeds": rows}), 10)
    found = cells(made.blocks[0])
    means = [statistics.fmean(pair) for pair in values.values()]
    within = [statistics.stdev([pair[i] for pair in values.values()]) for i in range(2)]
    assert made.blocks[0].title == "tensorldm, 3 seeds"
    assert found["LEM", "mean"].value == pytest.approx(statistics.fmean(means))
    assert found["LEM", "SD of the study's mean"].value == pytest.approx(statistics.stdev(means))
    assert found["LEM", "SD within a subject"].value == pytest.approx(statistics.fmean(within))
    assert found["LEM", "highest mean"].value == pytest.approx(max(means))


def test_steps_and_samplers_are_ranked_lines(stored):
    rows = [
        Row(f"tensorldm@sampler={sampler},steps={steps}", "s1", "tensor", "lem", value, "h1")
        for sampler, steps, value in (("ddim", 5, 0.6), ("ddim", 25, 0.4), ("dpm++2m", 5, 0.45))
    ]
    (made,) = only(stored({"steps": rows}), 10)
    (block,) = made.blocks
    assert [line.label for line in block.lines] == ["ddim, 5 steps", "ddim, 25 steps", "dpm++2m, 5 steps"]
    assert [places[0] for places in block.places()] == [0, 1, 2]


def test_the_fits_table_tells_how_far_every_measure_moves_and_leaves_the_truth_out(stored):
    lem = {"ols": 0.50, "wls": 0.53, "nlls": 0.49, "restore": 0.52, "truth": 0.9}
    rows = [Row(f"ade@reference={name}", "s1", "tensor", "lem", value, "h1") for name, value in lem.items()]
    rows += [Row(f"{fit}@reference=ols", "s1", "tensor", "lem", 0.1, "h1") for fit in ("wls", "nlls", "restore")]
    rows += [Row(f"{fit}@reference=truth", "s1", "tensor", "lem", 0.2, "h1") for fit in ("ols", "wls")]
    (made,) = only(stored({"fits": rows}, fits={"methods": ["ade"]}), 11)
    against_ols, against_truth, ade, everything = made.blocks
    assert [line.label for line in against_ols.lines] == ["WLS", "NLLS", "RESTORE"]
    assert [line.label for line in against_truth.lines] == ["OLS", "WLS"]
    assert cells(ade)["LEM", "largest move"].value == pytest.approx(0.04)
    assert cells(ade)["LEM", "against truth"].value == pytest.approx(0.9)
    assert everything.brief
    assert len(everything.lines) > len(ade.lines)
