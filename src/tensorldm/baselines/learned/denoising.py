"""Diffusion as the stochastic rivals use it: the package's own schedule, targets and samplers [E6].

What is diffused has the shape ``b 6 f x y z``: six maps of slices a group, or latents whose channels are six groups.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from tensorldm.baselines.learned.rival import Sampling
from tensorldm.diffusion import NoiseSchedule, Prediction, add_noise, prediction_target, sample, step_pairs
from tensorldm.shapes import Latents


def noised(
    clean: Latents, *, generators: Sequence[Generator], schedule: NoiseSchedule, prediction: Prediction
) -> tuple[Latents, Int[Tensor, " b"], Latents]:
    """At a step and with noise drawn for each member by its own generator: noisy, the steps, and what to predict."""
    drawn = [
        (
            torch.randint(len(schedule), (1,), generator=each, device=each.device),
            torch.randn(clean.shape[1:], generator=each, device=each.device),
        )
        for each in generators
    ]
    steps = torch.cat([step for step, _ in drawn]).to(clean.device)
    noise = torch.stack([noise for _, noise in drawn]).to(clean)
    alpha_bar = schedule.gather(steps)
    target = prediction_target(clean, noise, alpha_bar=alpha_bar, prediction=prediction)
    return add_noise(clean, noise, alpha_bar=alpha_bar), steps, target


def denoising_error(found: Latents, target: Latents) -> Float[Tensor, ""]:
    """Mean over everything."""
    return (found.float() - target).square().mean()


def draw_noise(sampling: Sampling, shape: tuple[int, ...], *, device: torch.device) -> Float[Tensor, "k 6 f x y z"]:
    """The starting noise of every sample."""
    numbers = range(sampling.first, sampling.first + sampling.num_samples)
    return torch.stack([sampling.noise(number, shape) for number in numbers]).to(device)


def draw_latents(
    denoise: Callable[[Latents, int], Latents],
    noise: Latents,
    *,
    sampling: Sampling,
    schedule: NoiseSchedule,
    prediction: Prediction,
) -> Latents:
    """Clean from noise, by the sampler that was asked for."""
    pairs = step_pairs(sampling.num_steps, schedule, spacing="trailing")
    return sample(denoise, noise, pairs=pairs, schedule=schedule, sampler=sampling.sampler, prediction=prediction)
