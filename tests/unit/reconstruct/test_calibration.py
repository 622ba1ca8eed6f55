"""Calibration: factors that are known in advance, and coverage that comes out as promised on other data."""

import pytest
import torch
from scipy.stats import t as student

from tensorldm.errors import DataError
from tensorldm.reconstruct.calibration import Judged, fit_calibration, judge, measure_coverage
from tensorldm.reconstruct.uncertainty import Calibration, measure_spread

FIBRE = torch.tensor([1.7e-3, 4e-4, 3e-4, 0.0, 0.0, 0.0], dtype=torch.float64)
SD = 2e-5


def subject(
    generator: torch.Generator, num_samples: int, *, truth_sd: float = SD, voxels: int = 8000
) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples of one SD and a truth of another, about the same fibre: overconfident where the truth's is larger."""
    scale = torch.tensor([1, 1, 1, 0.5**0.5, 0.5**0.5, 0.5**0.5], dtype=torch.float64)
    noise = torch.randn(num_samples + 1, voxels, 6, generator=generator, dtype=torch.float64) * scale
    return FIBRE + SD * noise[1:], FIBRE + truth_sd * noise[0]


def judged(generator: torch.Generator, num_samples: int, **more: float) -> Judged:
    return judge(*subject(generator, num_samples, **more))[0]


def test_samples_exchangeable_with_the_truth_need_no_factor(generator):
    found = fit_calibration([judged(generator, 8) for _ in range(4)], source="exchangeable")
    for factor in (found.fa, found.md, found.v1):
        assert factor == pytest.approx(1, abs=0.04)
    assert found.source == "exchangeable"


def test_overconfident_samples_are_widened_by_how_overconfident_they_are(generator):
    # The error of the mean of K draws has variance truth² + SD²/K, where the interval expects SD²(1 + 1/K).
    found = fit_calibration([judged(generator, 64, truth_sd=3 * SD)], level=0.9, source="overconfident")
    expected = ((9 + 1 / 64) / (1 + 1 / 64)) ** 0.5
    for factor in (found.fa, found.md, found.v1):
        assert factor == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_factors_fitted_on_some_subjects_cover_others(level, generator):
    seen = [judged(generator, 4, truth_sd=2 * SD) for _ in range(3)]
    unseen = [judged(generator, 4, truth_sd=2 * SD) for _ in range(3)]
    calibration = fit_calibration(seen, level=level, source="seen")
    before = measure_coverage(unseen, level=level)
    after = measure_coverage(unseen, level=level, calibration=calibration)
    for name in ("fa", "md", "v1"):
        assert getattr(before, name) < level - 0.05
        assert getattr(after, name) == pytest.approx(level, abs=0.015)


@pytest.mark.parametrize("used", [2, 8, 16])
def test_factors_fitted_with_four_samples_nearly_hold_with_another_number(used, generator):
    # In closed form 0.953, 0.943 and 0.937: the error of the mean shrinks with K, that of the truth does not.
    calibration = fit_calibration([judged(generator, 4, truth_sd=2 * SD) for _ in range(3)], source="four")
    found = measure_coverage([judged(generator, used, truth_sd=2 * SD)], calibration=calibration)
    fitted, needed = (((4 + 1 / k) / (1 + 1 / k)) ** 0.5 for k in (4, used))
    quantile = student.ppf(0.975, used - 1) * fitted / needed
    assert found.md == pytest.approx(2 * student.cdf(quantile, used - 1) - 1, abs=0.012)
    assert found.md == pytest.approx(0.95, abs=0.02)


def test_coverage_counts_what_the_written_intervals_hold(generator):
    samples, truth = subject(generator, 4, truth_sd=2 * SD)
    bvals, directions = torch.tensor([0.0, 1000.0]), torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    factors = Calibration(fa=1.2, md=0.7, v1=1.4)
    spread = measure_spread(samples, bvals=bvals, directions=directions, level=0.9, calibration=factors)
    assert spread is not None
    true_md = truth[:, :3].mean(dim=-1)
    inside = ((spread.md.low <= true_md) & (true_md <= spread.md.high)).double().mean().item()
    assert measure_coverage(judge(samples, truth), level=0.9, calibration=factors).md == pytest.approx(inside, abs=1e-3)


def test_directions_are_judged_only_where_the_truth_has_one(generator):
    samples, truth = subject(generator, 8)
    sphere = torch.tensor([[1e-3] * 3 + [0.0] * 3], dtype=torch.float64).expand(4000, 6)
    far_off = FIBRE[[1, 0, 2, 3, 4, 5]].expand(8, 4000, 6)
    mixed = (torch.cat((samples, far_off), dim=1), torch.cat((truth, sphere)))
    assert measure_coverage(judge(*mixed)).v1 == measure_coverage(judge(samples, truth)).v1


def tissues(generator: torch.Generator, num_samples: int, truth_sds: tuple[float, float, float]) -> list[Judged]:
    """Fluid, grey and white matter, each as overconfident as its truth's SD over that of its samples."""
    tensors = ([3e-3] * 3, [8e-4] * 3, [1.7e-3, 3e-4, 3e-4])
    found = []
    for values, truth_sd in zip(tensors, truth_sds, strict=True):
        samples, truth = subject(generator, num_samples, truth_sd=truth_sd * SD, voxels=6000)
        shift = torch.tensor([*values, 0.0, 0.0, 0.0], dtype=torch.float64) - FIBRE
        found.append(judge(samples + shift, truth + shift)[0])
    return found


def test_factors_by_tissue_are_each_tissues_own_overconfidence(generator):
    # MD is linear in the tensor, so the closed form of the test above holds for it in every tissue.
    found = fit_calibration(tissues(generator, 8, (1, 2, 4)), source="three tissues", by_tissue=["md"])
    expected = [((sd**2 + 1 / 8) / (1 + 1 / 8)) ** 0.5 for sd in (1, 2, 4)]
    assert found.md_by_tissue == pytest.approx(expected, rel=0.06)
    assert found.fa_by_tissue is None


def test_one_factor_covers_the_whole_and_no_tissue_where_tissues_differ(generator):
    seen, unseen = (tissues(generator, 8, (1, 2, 4)) for _ in range(2))
    one = fit_calibration(seen, source="one")
    each = fit_calibration(seen, source="each", by_tissue=["md"])
    covered = {
        name: [float(subject.covered("md", factors, level=0.95).mean()) for subject in unseen]
        for name, factors in (("one", one), ("each", each))
    }
    assert sum(covered["one"]) / 3 == pytest.approx(0.95, abs=0.01)
    assert covered["one"][0] > 0.995
    assert covered["one"][2] < 0.88
    assert covered["each"] == pytest.approx([0.95] * 3, abs=0.012)


def test_a_tissue_that_is_not_there_has_the_factor_of_the_whole(generator):
    grey_and_white = tissues(generator, 8, (1, 2, 3))[1:]
    found = fit_calibration(grey_and_white, source="no fluid", by_tissue=["md"])
    assert found.md_by_tissue is not None
    assert found.md_by_tissue[0] == pytest.approx(found.md)
    assert found.md_by_tissue[1] < found.md < found.md_by_tissue[2]


@pytest.mark.parametrize("factors", [Calibration(fa=4.0, md=3.0, v1=30.0), Calibration(md_by_tissue=(2.0, 3.0, 50.0))])
def test_widths_are_those_of_the_written_maps(factors, generator):
    samples, truth = subject(generator, 3, voxels=500)
    (found,) = judge(samples, truth)
    bvals, directions = torch.tensor([0.0, 1000.0]), torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    spread = measure_spread(samples, bvals=bvals, directions=directions, level=0.9, calibration=factors)
    assert spread is not None
    for quantity, width in (
        ("fa", spread.fa.high - spread.fa.low),
        ("md", spread.md.high - spread.md.low),
        ("v1", spread.v1_cone_degrees),
    ):
        torch.testing.assert_close(
            torch.from_numpy(found.widths(quantity, factors, level=0.9)).double(), width, rtol=1e-4, atol=1e-8
        )


def test_what_cannot_be_calibrated_is_refused_with_a_reason(generator):
    samples, truth = subject(generator, 4, voxels=50)
    with pytest.raises(DataError, match="Draw two or more"):
        judge(samples[:1], truth)
    with pytest.raises(DataError, match="do not differ at all"):
        fit_calibration(judge(samples[:1].expand(4, 50, 6), truth), source="copies")
    with pytest.raises(DataError, match="No subject"):
        measure_coverage([])
    sphere = torch.tensor([1e-3] * 3 + [0.0] * 3, dtype=torch.float64).expand(50, 6)
    with pytest.raises(DataError, match="true FA above"):
        measure_coverage(judge(samples, sphere))


def test_samples_that_are_no_numbers_are_refused(generator):
    samples = torch.randn(3, 5, 6, generator=generator)
    samples[1, 2, 3] = float("nan")
    with pytest.raises(DataError, match="not all numbers"):
        judge(samples, samples[0])
