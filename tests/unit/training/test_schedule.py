import pytest

from tensorldm.config.training import StageConfig
from tensorldm.training.schedule import COSINE_END, expected_steps, rate_factor


def _stage(**changes) -> StageConfig:
    return StageConfig(**{"steps": 100, "box": (8, 8, 8), **changes})


def test_the_rate_rises_linearly_to_its_peak_and_then_stays_when_constant():
    settings = _stage(warmup_steps=10)
    assert [rate_factor(step, settings) for step in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert rate_factor(10, settings) == rate_factor(99, settings) == 1.0


def test_the_cosine_starts_at_the_peak_passes_half_way_and_ends_at_its_floor():
    settings = _stage(steps=101, decay="cosine")
    assert rate_factor(0, settings) == pytest.approx(1.0)
    assert rate_factor(50, settings) == pytest.approx((1 + COSINE_END) / 2)
    assert rate_factor(100, settings) == pytest.approx(COSINE_END)
    factors = [rate_factor(step, settings) for step in range(101)]
    assert factors == sorted(factors, reverse=True)


def test_a_one_step_stage_with_a_long_warmup_still_has_a_rate():
    assert rate_factor(0, _stage(steps=1, warmup_steps=50, decay="cosine")) == pytest.approx(0.02)


def test_the_number_of_steps_to_expect_follows_the_clock_where_it_decides():
    assert expected_steps(_stage(), 30, seconds=60.0) == 100
    timed = _stage(steps=10**7, minutes=10.0)
    assert expected_steps(timed, 0, seconds=0.0) == 10**7
    assert expected_steps(timed, 500, seconds=60.0) == 5000
    assert expected_steps(_stage(steps=4000, minutes=10.0), 500, seconds=60.0) == 4000
    assert expected_steps(timed, 5100, seconds=601.0) == 5100
