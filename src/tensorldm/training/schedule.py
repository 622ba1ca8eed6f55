"""The learning rate as a function of the step alone, so that resuming needs no scheduler's memory."""

from math import cos, pi

from tensorldm.config.training import StageConfig

COSINE_END = 0.01
"""[choice: cosine-end] Share of the peak rate at the last step: small enough to settle, never a wasted zero."""


def rate_factor(step: int, settings: StageConfig) -> float:
    """Share of the peak learning rate at a step (the first is 0): a linear rise, then constant or half a cosine."""
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    if settings.decay == "constant":
        return 1.0
    length = max(settings.steps - 1 - settings.warmup_steps, 1)
    done = min((step - settings.warmup_steps) / length, 1.0)
    return COSINE_END + (1 - COSINE_END) * (1 + cos(pi * done)) / 2
