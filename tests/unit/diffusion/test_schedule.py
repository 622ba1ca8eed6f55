from itertools import pairwise
from math import sqrt

import pytest
import torch

from tensorldm.diffusion import (
    add_noise,
    linear_schedule,
    log_snr_pairs,
    prediction_target,
    split_prediction,
    trailing_pairs,
)
from tensorldm.diffusion.schedule import CLEAN, NoiseSchedule, check_pairs

SHAPE = (2, 6, 3, 2, 2, 2)


def test_alpha_bar_is_the_product_of_one_minus_each_beta():
    schedule = linear_schedule()
    product = 1.0
    for t in range(1000):
        product *= 1.0 - (1e-4 + t * (2e-2 - 1e-4) / 999)
    assert float(schedule.alpha_bar[-1]) == pytest.approx(product, rel=1e-11)
    assert float(schedule.alpha_bar[0]) == pytest.approx(1 - 1e-4, rel=1e-15)
    assert len(schedule) == 1000


def test_a_schedule_in_float32_is_refused():
    with pytest.raises(AssertionError, match="float64"):
        NoiseSchedule(torch.rand(10))


def test_noise_vanishes_before_step_zero():
    schedule = linear_schedule()
    assert schedule.signal(CLEAN) == 1.0
    assert schedule.noise(CLEAN) == 0.0


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 25, 250, 999, 1000])
def test_trailing_pairs_start_at_the_last_trained_step_and_end_clean(num_steps):
    pairs = trailing_pairs(num_steps)
    assert len(pairs) == num_steps
    assert pairs[0][0] == 999
    assert pairs[-1][1] == CLEAN
    check_pairs(pairs)


@pytest.mark.parametrize("num_steps", [1, 2, 3, 7, 25, 250, 999, 1000])
def test_log_snr_pairs_are_a_whole_path_of_that_many_steps(num_steps):
    pairs = log_snr_pairs(num_steps, linear_schedule())
    assert len(pairs) == num_steps
    assert pairs[0][0] == 999
    check_pairs(pairs)


def test_log_snr_pairs_are_evenly_spread_in_log_snr():
    schedule = linear_schedule()
    times = [schedule.log_snr(step) for step, _ in log_snr_pairs(20, schedule)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) < 1.3 * min(gaps)  # near t = 0 whole steps are coarse: a tenth of a gap each way


def test_trailing_pairs_of_four_steps_are_a_quarter_apart():
    assert trailing_pairs(4) == ((999, 749), (749, 499), (499, 249), (249, CLEAN))


@pytest.mark.parametrize("pairs", [[], [(999, 500)], [(999, 500), (400, CLEAN)], [(5, 5), (5, CLEAN)]])
def test_a_path_with_a_gap_or_without_an_end_is_refused(pairs):
    with pytest.raises(AssertionError):
        check_pairs(pairs)


def test_noised_latents_keep_unit_variance_and_the_stated_share_of_signal(generator):
    schedule = linear_schedule()
    shape = (2, 6, 8, 12, 12, 12)
    latents, noise = (torch.randn(shape, generator=generator) for _ in range(2))
    steps = torch.tensor([100, 600])
    noisy = add_noise(latents, noise, alpha_bar=schedule.gather(steps))
    for index, step in enumerate(steps.tolist()):
        assert float(noisy[index].var()) == pytest.approx(1, abs=0.02)
        share = float((noisy[index] * latents[index]).mean() / latents[index].square().mean())
        assert share == pytest.approx(sqrt(float(schedule.alpha_bar[step])), abs=0.01)


def test_one_component_noised_does_not_touch_the_others(generator):
    schedule = linear_schedule()
    latents = torch.zeros(SHAPE)
    noise = torch.zeros(SHAPE)
    noise[:, 3] = 1.0
    noisy = add_noise(latents, noise, alpha_bar=schedule.gather(torch.tensor([10, 900])))
    assert noisy[:, [0, 1, 2, 4, 5]].abs().max() == 0
    assert noisy[:, 3].abs().min() > 0


@pytest.mark.parametrize("prediction", ["noise", "velocity", "clean"])
@pytest.mark.parametrize("step", [0, 1, 500, 999])
def test_a_prediction_tells_clean_latents_and_noise_apart(prediction, step, generator):
    schedule = linear_schedule()
    latents, noise = (torch.randn(SHAPE, generator=generator, dtype=torch.float64) for _ in range(2))
    alpha_bar = schedule.gather(torch.full((2,), step))
    noisy = add_noise(latents, noise, alpha_bar=alpha_bar)
    target = prediction_target(latents, noise, alpha_bar=alpha_bar, prediction=prediction)
    clean, implied = split_prediction(
        target, noisy, signal=schedule.signal(step), spread=schedule.noise(step), prediction=prediction
    )
    torch.testing.assert_close(clean, latents, atol=1e-11, rtol=0)
    torch.testing.assert_close(implied, noise, atol=1e-11, rtol=0)


def test_the_velocity_is_the_derivative_of_the_noisy_latents_along_the_circle(generator):
    """With signal = cos φ and spread = sin φ the velocity is dz/dφ, the definition of Salimans and Ho."""
    schedule = linear_schedule()
    latents, noise = (torch.randn(SHAPE, generator=generator, dtype=torch.float64) for _ in range(2))
    alpha_bar = schedule.gather(torch.full((2,), 400))
    phi, small = torch.acos(alpha_bar.sqrt()), 1e-6
    ahead, behind = (add_noise(latents, noise, alpha_bar=torch.cos(phi + shift).square()) for shift in (small, -small))
    velocity = prediction_target(latents, noise, alpha_bar=alpha_bar, prediction="velocity")
    torch.testing.assert_close(velocity, (ahead - behind) / (2 * small), atol=1e-6, rtol=0)
