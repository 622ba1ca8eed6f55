"""Coverage by region against its closed form: Gaussian samples whose overconfidence is known."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from tensorldm.cohort.anatomy import TISSUES
from tensorldm.experiments.calibrating import fit_factors
from tensorldm.experiments.coverage import MASK, MORE, THREE, CoverageRow, Observed, coverage_rows, to_csv
from tensorldm.experiments.coverage_text import describe_factors, short_table, to_markdown, verdict
from tensorldm.experiments.known_scans import CLEAN, FIT
from tensorldm.reconstruct.calibration import judge
from tensorldm.reconstruct.uncertainty import Calibration

SAMPLES = 6
VOXELS = 4000
TENSORS = {"csf": [3e-3] * 3, "grey": [8e-4] * 3, "white": [1.7e-3, 3e-4, 3e-4]}
SD = 2e-5


def observed(generator, truth_sds=(1.0, 1.0, 1.0), *, directions=3, noisier=2.0) -> Observed:
    """Three tissues whose clean truth scatters ``truth_sds`` times as far as the samples, the fit ``noisier`` times
    as far again."""
    samples, clean, fit = [], [], []
    for name, truth_sd in zip(TISSUES, truth_sds, strict=True):
        middle = torch.tensor([*TENSORS[name], 0.0, 0.0, 0.0], dtype=torch.float64)
        noise = SD * torch.randn(SAMPLES + 1, VOXELS, 6, generator=generator, dtype=torch.float64)
        samples.append(middle + noise[1:])
        clean.append(middle + truth_sd * noise[0])
        fit.append(middle + noisier * truth_sd * noise[0])
    judged = judge(torch.cat(samples, dim=1), torch.cat(clean), torch.cat(fit))
    return Observed("s", "a", directions, dict(zip((CLEAN, FIT), judged, strict=True)), np.arange(3).repeat(VOXELS))


def expected(truth_sd: float, level: float, factor: float = 1.0) -> float:
    """MD's error over its SD estimate has Student's distribution, wider by how far the truth scatters."""
    wider = ((truth_sd**2 + 1 / SAMPLES) / (1 + 1 / SAMPLES)) ** 0.5
    quantile = student.ppf((1 + level) / 2, SAMPLES - 1)
    return float(2 * student.cdf(factor * quantile / wider, SAMPLES - 1) - 1)


def find(rows, quantity, level, region, truth=CLEAN) -> CoverageRow:
    (row,) = (r for r in rows if (r.quantity, r.level, r.region, r.truth) == (quantity, level, region, truth))
    return row


def test_each_tissue_and_truth_is_covered_as_often_as_the_closed_form_says(generator):
    rows = coverage_rows("test", [observed(generator, (1, 2, 3))], Calibration(md=1.7))
    for tissue, truth_sd in zip(TISSUES, (1, 2, 3), strict=True):
        for level in (0.9, 0.95):
            row = find(rows, "md", level, tissue)
            assert row.covered_before == pytest.approx(expected(truth_sd, level), abs=0.02)
            assert row.covered == pytest.approx(expected(truth_sd, level, 1.7), abs=0.02)
            assert row.width == pytest.approx(1.7 * row.width_before, rel=1e-4)
            noisy = find(rows, "md", level, tissue, FIT)
            assert noisy.covered == pytest.approx(expected(2 * truth_sd, level, 1.7), abs=0.02)
    whole = find(rows, "md", 0.9, MASK)
    assert whole.voxels == 3 * VOXELS
    assert whole.covered == pytest.approx(np.mean([expected(sd, 0.9, 1.7) for sd in (1, 2, 3)]), abs=0.015)


def test_directions_are_judged_where_the_truth_has_one(generator):
    rows = coverage_rows("test", [observed(generator)], Calibration())
    assert find(rows, "v1", 0.95, MASK).voxels == VOXELS
    assert find(rows, "v1", 0.95, "white").covered == pytest.approx(0.95, abs=0.02)
    assert not [row for row in rows if row.quantity == "v1" and row.region == "grey"]


def test_scans_of_three_directions_and_of_more_are_told_apart_where_there_are_both(generator):
    three, more = observed(generator, (1, 1, 1)), observed(generator, (3, 3, 3), directions=6)
    rows = coverage_rows("test", [three, more], Calibration())
    assert find(rows, "md", 0.9, THREE).covered == pytest.approx(expected(1, 0.9), abs=0.02)
    assert find(rows, "md", 0.9, MORE).covered == pytest.approx(expected(3, 0.9), abs=0.02)
    both = find(rows, "md", 0.9, MASK)
    assert (both.lowest_subject, both.highest_subject) == pytest.approx((expected(3, 0.9), expected(1, 0.9)), abs=0.02)
    assert THREE not in {row.region for row in coverage_rows("test", [three], Calibration())}


def test_one_factor_stays_where_tissues_agree_and_gives_way_where_they_do_not(generator):
    alike = fit_factors([observed(generator, (2, 2, 2))], "auto", source="alike")
    assert alike.md_by_tissue is None
    assert alike.md == pytest.approx(((4 + 1 / SAMPLES) / (1 + 1 / SAMPLES)) ** 0.5, rel=0.05)
    apart = fit_factors([observed(generator, (1, 2, 5))], "auto", source="apart")
    assert apart.md_by_tissue is not None
    assert fit_factors([observed(generator, (1, 2, 5))], "one", source="one").md_by_tissue is None
    rows = coverage_rows("test", [observed(generator, (1, 2, 5))], apart)
    for tissue in TISSUES:
        assert find(rows, "md", 0.9, tissue).covered == pytest.approx(0.9, abs=0.025)


def test_factors_by_tissue_can_be_asked_for(generator):
    found = fit_factors([observed(generator)], "by-tissue", source="asked")
    assert found.md_by_tissue == pytest.approx([1.0] * 3, rel=0.08)
    assert found.fa_by_tissue is not None


def test_promises_are_made_of_the_clean_tensor_of_test_anatomies_alone(generator):
    rows = coverage_rows("validation", [observed(generator)], Calibration())
    assert all(row.goal is None for row in rows)
    assert "Nothing is promised" in verdict(rows)
    rows = coverage_rows("test", [observed(generator)], Calibration())
    promised = [row for row in rows if row.goal is not None]
    assert len(promised) == 9
    assert {row.truth for row in promised} == {CLEAN}
    assert "All 9" in verdict([replace(row, covered=0.91) for row in rows])


def test_a_missed_promise_is_named(generator):
    rows = coverage_rows("test", [observed(generator, (1, 1, 6))], Calibration())
    assert "MD 90% in white" in verdict(rows)
    assert "missed" in to_markdown(rows)
    assert any("missed" in cells[4] for cells in short_table(rows)[1:])


def test_every_figure_is_in_the_csv(generator):
    rows = coverage_rows("test", [observed(generator)], Calibration(fa=2.0))
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert [float(line["covered"]) for line in read] == [row.covered for row in rows]
    assert {line["region"] for line in read} == {MASK, *TISSUES}


def test_factors_are_told_in_words():
    fa, md, v1 = describe_factors(Calibration(fa=2.0, md=1.5, v1=3.0, md_by_tissue=(1.0, 2.0, 4.0)))
    assert fa == "FA: half-widths times 2."
    assert md.endswith("csf 1, grey 2, white 4.")
    assert v1 == "v1: half-widths times 3."
