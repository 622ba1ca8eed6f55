"""Whatever the clean latents, noise and path: a perfect denoiser leads every sampler exactly to the clean latents."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorldm.diffusion import SAMPLERS, linear_schedule, prediction_target, sample, trailing_pairs

SCHEDULE = linear_schedule()
PREDICTIONS = ("noise", "velocity", "clean")


def perfect_denoiser(clean, prediction):
    """Knows the clean latents, and answers with what would have turned them into what it is shown."""

    def denoise(latents, step):
        noise = (latents - SCHEDULE.signal(step) * clean) / SCHEDULE.noise(step)
        alpha_bar = SCHEDULE.gather(torch.full((len(latents),), step))
        return prediction_target(clean, noise, alpha_bar=alpha_bar, prediction=prediction)

    return denoise


def draw(seed, magnitude):
    generator = torch.Generator().manual_seed(seed)
    clean = magnitude * torch.randn(1, 6, 2, 2, 1, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(clean.shape, generator=generator, dtype=torch.float64)
    return clean, noise


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    ("prediction", "num_steps"),
    [
        *(("noise", steps) for steps in (*range(1, 51), 250)),
        *((prediction, steps) for prediction in ("velocity", "clean") for steps in (1, 2, 3, 10, 25, 50, 250)),
    ],
)
def test_a_perfect_denoiser_leads_to_the_clean_latents_at_every_step_count(sampler, num_steps, prediction):
    clean, noise = draw(num_steps, magnitude=1.0)
    found = sample(
        perfect_denoiser(clean, prediction),
        noise,
        pairs=trailing_pairs(num_steps),
        schedule=SCHEDULE,
        sampler=sampler,
        prediction=prediction,
    )
    torch.testing.assert_close(found, clean, atol=1e-10, rtol=0)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    magnitude=st.floats(1e-3, 50.0),
    steps=st.sets(st.integers(0, 998), max_size=12),
    sampler=st.sampled_from(sorted(SAMPLERS)),
    prediction=st.sampled_from(PREDICTIONS),
)
def test_a_perfect_denoiser_is_right_on_any_descending_path_and_is_never_clipped(
    seed, magnitude, steps, sampler, prediction
):
    clean, noise = draw(seed, magnitude)
    path = [999, *sorted(steps, reverse=True), -1]
    pairs = list(pairwise(path))
    found = sample(
        perfect_denoiser(clean, prediction),
        noise,
        pairs=pairs,
        schedule=SCHEDULE,
        sampler=sampler,
        prediction=prediction,
    )
    torch.testing.assert_close(found, clean, atol=1e-9 * max(1.0, magnitude), rtol=0)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), eta=st.floats(0.0, 1.0), num_steps=st.integers(1, 30))
def test_fresh_noise_on_the_way_does_not_mislead_a_perfect_denoiser(seed, eta, num_steps):
    clean, noise = draw(seed, magnitude=1.0)
    found = sample(
        perfect_denoiser(clean, "noise"),
        noise,
        pairs=trailing_pairs(num_steps),
        schedule=SCHEDULE,
        eta=eta,
        generator=torch.Generator().manual_seed(seed),
    )
    torch.testing.assert_close(found, clean, atol=1e-10, rtol=0)
