from math import sqrt

import pytest
import torch

from tensorldm.diffusion import SAMPLERS, NoiseSchedule, ddim, linear_schedule, log_snr_pairs, sample, trailing_pairs

SHAPE = (1, 6, 2, 3, 2, 2)
SCHEDULE = linear_schedule()


def gaussian_denoiser(mean: float, spread: float, schedule: NoiseSchedule = SCHEDULE):
    """The exact noise prediction when clean latents are normal numbers: E[noise | z_t] in closed form."""

    def denoise(latents, step):
        signal, noise = schedule.signal(step), schedule.noise(step)
        variance = (signal * spread) ** 2 + noise**2
        return noise * (latents - signal * mean) / variance

    return denoise


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_carry_noise_to_a_gaussian_prior_s_quantile(sampler, generator):
    """For normal data the probability flow is linear: each noise must land on mean + spread · (its own quantile)."""
    noise = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
    mean, spread = 0.7, 0.5
    found = sample(
        gaussian_denoiser(mean, spread), noise, pairs=trailing_pairs(1000), schedule=SCHEDULE, sampler=sampler
    )
    signal, rest = SCHEDULE.signal(999), SCHEDULE.noise(999)
    quantile = (noise - signal * mean) / sqrt((signal * spread) ** 2 + rest**2)
    torch.testing.assert_close(found, mean + spread * quantile, atol=2e-2, rtol=0)


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.5, 1.0])
def test_ten_steps_of_dpm_solver_evenly_in_log_snr_beat_twenty_of_plain_ddim(spread, generator):
    """Exact posteriors from narrow (well-determined latents) to as wide as the prior."""
    noise = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
    denoise = gaussian_denoiser(0.7, spread)

    def error(pairs, sampler):
        return float((sample(denoise, noise, pairs=pairs, schedule=SCHEDULE, sampler=sampler) - exact).abs().max())

    exact = sample(denoise, noise, pairs=trailing_pairs(1000), schedule=SCHEDULE)
    ddim_error = {steps: error(trailing_pairs(steps), "ddim") for steps in (10, 20)}
    assert error(log_snr_pairs(10, SCHEDULE), "dpm++2m") < ddim_error[20] < ddim_error[10]


@pytest.mark.parametrize("spread", [0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0])
def test_eight_steps_of_dpm_solver_evenly_in_log_snr_beat_the_papers_twenty_five(spread, generator):
    noise = torch.randn(SHAPE, generator=generator, dtype=torch.float64)
    denoise = gaussian_denoiser(0.7, spread)
    exact = sample(denoise, noise, pairs=trailing_pairs(1000), schedule=SCHEDULE)
    quick = sample(denoise, noise, pairs=log_snr_pairs(8, SCHEDULE), schedule=SCHEDULE, sampler="dpm++2m")
    papers = sample(denoise, noise, pairs=trailing_pairs(25), schedule=SCHEDULE)
    assert (quick - exact).abs().max() < 0.6 * (papers - exact).abs().max()


def test_ddim_at_eta_one_is_ancestral_sampling_with_the_posterior_variance(generator):
    """One step of DDPM: the mean and variance of q(z_prev | z_t, z_0), from Ho et al.'s closed form."""
    schedule = SCHEDULE
    step, previous = 600, 599
    a, a_prev = float(schedule.alpha_bar[step]), float(schedule.alpha_bar[previous])
    alpha, beta = a / a_prev, 1 - a / a_prev
    clean = torch.full((1, 6, 8, 12, 12, 12), 0.8, dtype=torch.float64)
    noise = torch.randn(clean.shape, generator=generator, dtype=torch.float64)
    noisy = sqrt(a) * clean + sqrt(1 - a) * noise

    steps = iter([noise, torch.zeros_like(noise)])
    seen = []

    def denoise(latents, _):
        seen.append(latents)
        return next(steps)

    ddim(denoise, noisy, pairs=[(step, previous), (previous, -1)], schedule=schedule, eta=1.0, generator=generator)
    mean = sqrt(a_prev) * beta / (1 - a) * clean + sqrt(alpha) * (1 - a_prev) / (1 - a) * noisy
    residual = seen[1] - mean
    variance = beta * (1 - a_prev) / (1 - a)
    assert float(residual.mean()) == pytest.approx(0, abs=3 * sqrt(variance / residual.numel()))
    assert float(residual.var()) == pytest.approx(variance, rel=0.03)


def test_eta_draws_only_from_the_generator_it_is_given():
    noise = torch.ones(SHAPE)
    state = torch.random.get_rng_state()
    results = [
        sample(
            gaussian_denoiser(0.0, 1.0),
            noise,
            pairs=trailing_pairs(5),
            schedule=SCHEDULE,
            eta=1.0,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in (1, 1, 2)
    ]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert torch.equal(torch.random.get_rng_state(), state)


def test_eta_without_a_generator_is_refused():
    with pytest.raises(AssertionError, match="generator"):
        sample(gaussian_denoiser(0.0, 1.0), torch.ones(SHAPE), pairs=trailing_pairs(3), schedule=SCHEDULE, eta=0.5)


def test_dpm_solver_refuses_eta():
    with pytest.raises(AssertionError, match="deterministic"):
        sample(
            gaussian_denoiser(0.0, 1.0),
            torch.ones(SHAPE),
            pairs=trailing_pairs(3),
            schedule=SCHEDULE,
            sampler="dpm++2m",
            eta=0.5,
        )


def test_an_unknown_sampler_is_named():
    with pytest.raises(AssertionError, match=r"ddim, dpm\+\+2m"):
        sample(gaussian_denoiser(0, 1), torch.ones(SHAPE), pairs=trailing_pairs(1), schedule=SCHEDULE, sampler="euler")


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_latents_stay_in_float32_when_the_network_computes_in_bfloat16(sampler):
    denoise = gaussian_denoiser(0.2, 1.0)
    dtypes = []

    def coarse(latents, step):
        dtypes.append(latents.dtype)
        return denoise(latents, step).bfloat16()

    found = sample(coarse, torch.ones(SHAPE), pairs=trailing_pairs(6), schedule=SCHEDULE, sampler=sampler)
    assert set(dtypes) == {torch.float32}
    assert found.dtype == torch.float32
