"""The forward process [E6] and what a network may be asked to predict of it.

alpha_bar is the share of signal power left after step t: z_t = sqrt(alpha_bar) z_0 + sqrt(1 - alpha_bar) noise.
It is kept in float64: near t = 0 the difference 1 - alpha_bar has four leading zeros that float32 would blur.
Axes: b batch, d component (6), f latent channel, x y z space.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from tensorldm.shapes import Latents

NUM_STEPS = 1000  # [choice: beta-range] T of the paper
FIRST_BETA = 1e-4  # [choice: beta-range]
LAST_BETA = 2e-2  # [choice: beta-range]
CLEAN = -1
"""The step before step 0, where nothing is noise: alpha_bar = 1."""

Prediction = Literal["noise", "velocity", "clean"]
"""What the network gives: the noise (the paper's), the velocity sqrt(a) noise - sqrt(1 - a) z_0, or z_0 itself."""

Spacing = Literal["trailing", "log-snr"]
"""trailing: equal strides in t (the paper's). log-snr: equal strides in log-SNR."""

StepPair = tuple[int, int]
"""(t, t_prev): the step that the latents are at, and the one a sampler takes them to."""


@dataclass(frozen=True, eq=False)
class NoiseSchedule:
    """alpha_bar of every step, in float64 on the CPU; samplers read plain numbers from it."""

    alpha_bar: Float[Tensor, " t"]

    def __post_init__(self) -> None:
        assert self.alpha_bar.dtype == torch.float64, "a schedule is kept in float64"

    def __len__(self) -> int:
        return len(self.alpha_bar)

    def signal(self, step: int) -> float:
        """sqrt(alpha_bar), the factor of the clean latents."""
        return sqrt(self._at(step))

    def noise(self, step: int) -> float:
        """sqrt(1 - alpha_bar), the factor of the noise."""
        return sqrt(1.0 - self._at(step))

    def log_snr(self, step: int) -> float:
        """Half the log of the signal-to-noise power ratio, the time in which DPM-Solver is exact; not for CLEAN."""
        return log(self.signal(step)) - log(self.noise(step))

    def gather(self, steps: Int[Tensor, " b"]) -> Float[Tensor, " b"]:
        """alpha_bar of each member of a batch, in float64 on the steps' device."""
        return self.alpha_bar.to(steps.device)[steps]

    def _at(self, step: int) -> float:
        return 1.0 if step == CLEAN else float(self.alpha_bar[step])


def linear_schedule(
    num_steps: int = NUM_STEPS, first_beta: float = FIRST_BETA, *, last_beta: float = LAST_BETA
) -> NoiseSchedule:
    """Linearly growing beta, the paper's schedule."""
    betas = torch.linspace(first_beta, last_beta, num_steps, dtype=torch.float64)
    return NoiseSchedule((1.0 - betas).cumprod(dim=0))


def trailing_pairs(num_steps: int, *, train_steps: int = NUM_STEPS) -> tuple[StepPair, ...]:
    """``num_steps`` equal strides from the last trained step T - 1 down to CLEAN [choice: spacing].

    Starting anywhere below T - 1 would hand the network pure noise with the claim that some signal is left in it.
    """
    assert 1 <= num_steps <= train_steps, f"between 1 and {train_steps} steps, not {num_steps}"
    steps = [round(train_steps - i * train_steps / num_steps) - 1 for i in range(num_steps)]
    return tuple(zip(steps, [*steps[1:], CLEAN], strict=True))


def log_snr_pairs(num_steps: int, schedule: NoiseSchedule) -> tuple[StepPair, ...]:
    """Steps from T - 1 down to CLEAN, evenly spread in log-SNR [choice: spacing].

    Equal strides in t leave the last stride with most of the way to go in log-SNR; where the condition leaves little
    open, that is where the error is made. With few steps and a second-order solver this spacing is far better.
    """
    assert 1 <= num_steps <= len(schedule), f"between 1 and {len(schedule)} steps, not {num_steps}"
    log_snr = 0.5 * (schedule.alpha_bar.log() - (-schedule.alpha_bar).log1p())
    wanted = torch.linspace(float(log_snr[-1]), float(log_snr[0]), num_steps + 1, dtype=torch.float64)[:-1]
    nearest = (log_snr[None] - wanted[:, None]).abs().argmin(dim=1).tolist()
    steps: list[int] = []
    for left, step in zip(reversed(range(num_steps)), nearest, strict=True):
        highest = steps[-1] - 1 if steps else len(schedule) - 1
        steps.append(max(min(step, highest), left))  # strictly down, with room for the steps that are left
    return tuple(zip(steps, [*steps[1:], CLEAN], strict=True))


def step_pairs(num_steps: int, schedule: NoiseSchedule, *, spacing: Spacing) -> tuple[StepPair, ...]:
    """The path of ``num_steps`` steps in this spacing."""
    if spacing == "trailing":
        return trailing_pairs(num_steps, train_steps=len(schedule))
    return log_snr_pairs(num_steps, schedule)


def check_pairs(pairs: Sequence[StepPair]) -> None:
    """Pairs must join into one descending path that ends in clean latents."""
    assert pairs, "a sampler needs at least one step"
    for (_, arrived), (departs, _) in pairwise(pairs):
        assert arrived == departs, f"a step ends at {arrived} but the next starts at {departs}"
    assert all(t > previous for t, previous in pairs), "steps go down"
    assert pairs[-1][1] == CLEAN, "the last step ends in clean latents"


def add_noise(latents: Latents, noise: Latents, *, alpha_bar: Float[Tensor, " b"]) -> Latents:
    """Forward process [E6]; the noise is drawn independently per component by the caller."""
    signal, spread = _factors(alpha_bar, latents)
    return signal * latents + spread * noise


def prediction_target(
    latents: Latents, noise: Latents, *, alpha_bar: Float[Tensor, " b"], prediction: Prediction
) -> Latents:
    """What the network should give for noisy latents made of these two [E8, E10]."""
    if prediction == "noise":
        return noise
    if prediction == "clean":
        return latents
    signal, spread = _factors(alpha_bar, latents)
    return signal * noise - spread * latents


def split_prediction(
    predicted: Latents, noisy: Latents, *, signal: float, spread: float, prediction: Prediction
) -> tuple[Latents, Latents]:
    """Clean latents and noise that a prediction implies; the clean ones are never clipped."""
    if prediction == "noise":
        return (noisy - spread * predicted) / signal, predicted
    if prediction == "clean":
        return predicted, (noisy - signal * predicted) / spread
    return signal * noisy - spread * predicted, spread * noisy + signal * predicted


def _factors(alpha_bar: Float[Tensor, " b"], like: Latents) -> tuple[Tensor, Tensor]:
    """sqrt(a) and sqrt(1 - a), taken in float64 and only then brought to the latents' precision."""
    wide = rearrange(alpha_bar.double(), "b -> b 1 1 1 1 1")
    return wide.sqrt().to(like), (1 - wide).sqrt().to(like)
