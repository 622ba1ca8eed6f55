"""From noise to clean latents: DDIM and DPM-Solver++(2M) behind one contract.

A sampler is a function of a denoiser, the starting noise and explicit (t, t_prev) pairs. It keeps the latents
in the noise's own precision (float32 or wider, whatever the network computes in), never clips them, and draws
nothing unless asked to (DDIM with eta > 0), and then from the generator it is given.
Axes: b batch, d component (6), f latent channel, x y z space.
"""

from collections.abc import Callable, Mapping, Sequence
from math import expm1, sqrt
from typing import Protocol

import torch
from torch import Generator

from tensorldm.diffusion.schedule import (
    CLEAN,
    NoiseSchedule,
    Prediction,
    StepPair,
    check_pairs,
    split_prediction,
)
from tensorldm.shapes import Latents

Denoise = Callable[[Latents, int], Latents]
"""The network at a step: (noisy latents, t) -> its prediction."""


class Sampler(Protocol):
    """What every sampler takes and gives."""

    def __call__(
        self,
        denoise: Denoise,
        noise: Latents,
        *,
        pairs: Sequence[StepPair],
        schedule: NoiseSchedule,
        prediction: Prediction = "noise",
        generator: Generator | None = None,
        eta: float = 0.0,
    ) -> Latents:
        """Clean latents from noise at the first pair's t."""
        ...


def ddim(
    denoise: Denoise,
    noise: Latents,
    *,
    pairs: Sequence[StepPair],
    schedule: NoiseSchedule,
    prediction: Prediction = "noise",
    generator: Generator | None = None,
    eta: float = 0.0,
) -> Latents:
    """DDIM: deterministic at eta = 0 (the paper's), ancestral (DDPM) at eta = 1."""
    check_pairs(pairs)
    latents = noise
    for step, previous in pairs:
        signal, spread = schedule.signal(step), schedule.noise(step)
        predicted = denoise(latents, step).to(latents.dtype)
        clean, implied_noise = split_prediction(predicted, latents, signal=signal, spread=spread, prediction=prediction)
        next_signal, next_spread = schedule.signal(previous), schedule.noise(previous)
        fresh = eta * next_spread / spread * sqrt(max(0.0, 1 - (signal / next_signal) ** 2))
        latents = next_signal * clean + sqrt(next_spread**2 - fresh**2) * implied_noise
        if fresh > 0:
            assert generator is not None, "eta > 0 draws noise: give the generator to draw it from"
            drawn = torch.randn(latents.shape, generator=generator, dtype=latents.dtype, device=generator.device)
            latents = latents + fresh * drawn.to(latents.device)
    return latents


def dpm_solver_2m(
    denoise: Denoise,
    noise: Latents,
    *,
    pairs: Sequence[StepPair],
    schedule: NoiseSchedule,
    prediction: Prediction = "noise",
    generator: Generator | None = None,  # noqa: ARG001  part of the contract; this solver draws nothing
    eta: float = 0.0,
) -> Latents:
    """DPM-Solver++(2M): second order in half the log-SNR, one network call a step, from the last two clean estimates.

    The first step has no history and the last goes to infinite SNR: both are first order.
    """
    assert eta == 0.0, "DPM-Solver++(2M) is deterministic: it takes no eta"
    check_pairs(pairs)
    latents = noise
    last_clean, last_width = None, 0.0
    for step, previous in pairs:
        signal, spread = schedule.signal(step), schedule.noise(step)
        predicted = denoise(latents, step).to(latents.dtype)
        clean, _ = split_prediction(predicted, latents, signal=signal, spread=spread, prediction=prediction)
        if previous == CLEAN:
            return clean
        width = schedule.log_snr(previous) - schedule.log_snr(step)
        estimate = clean
        if last_clean is not None:
            lean = width / (2 * last_width)
            estimate = (1 + lean) * clean - lean * last_clean
        latents = schedule.noise(previous) / spread * latents - schedule.signal(previous) * expm1(-width) * estimate
        last_clean, last_width = clean, width
    raise AssertionError("unreachable: the last pair ends in CLEAN")


SAMPLERS: Mapping[str, Sampler] = {"ddim": ddim, "dpm++2m": dpm_solver_2m}


def sample(
    denoise: Denoise,
    noise: Latents,
    *,
    pairs: Sequence[StepPair],
    schedule: NoiseSchedule,
    sampler: str = "ddim",
    prediction: Prediction = "noise",
    generator: Generator | None = None,
    eta: float = 0.0,
) -> Latents:
    """Clean latents from noise by the sampler of this name."""
    assert sampler in SAMPLERS, f"no sampler '{sampler}': one of {', '.join(SAMPLERS)}"
    return SAMPLERS[sampler](
        denoise, noise, pairs=pairs, schedule=schedule, prediction=prediction, generator=generator, eta=eta
    )
