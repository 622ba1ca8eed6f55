"""The learning rate and the end of a stage as functions of how far it is, so that resuming needs no memory of its own.

How far: in steps, or by the clock where a stage has a budget of minutes; whichever is further.
"""

from math import cos, pi

from tensorldm.config.training import StageConfig

COSINE_END = 0.01
"""[choice: cosine-end] Share of the peak rate at the last step: small enough to settle, never a wasted zero."""


def is_over(settings: StageConfig, step: int, *, seconds: float) -> bool:
    """Whether so many steps, or so many seconds of them, are all that a stage has."""
    return step >= settings.steps or _clock(settings, seconds) >= 1


def expected_steps(settings: StageConfig, step: int, *, seconds: float) -> int:
    """How many steps a stage will have had at its end, if it goes on as fast as so far."""
    spent = _clock(settings, seconds)
    return settings.steps if spent == 0 else max(min(settings.steps, round(step / spent)), step)


def rate_factor(step: int, settings: StageConfig, *, seconds: float = 0.0) -> float:
    """Share of the peak learning rate at a step (the first is 0): a linear rise, then constant or half a cosine."""
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    if settings.decay == "constant":
        return 1.0
    length = max(settings.steps - 1 - settings.warmup_steps, 1)
    done = min(max((step - settings.warmup_steps) / length, _clock(settings, seconds)), 1.0)
    return COSINE_END + (1 - COSINE_END) * (1 + cos(pi * done)) / 2


def _clock(settings: StageConfig, seconds: float) -> float:
    """Share of the minutes that are spent; none where there is no such budget."""
    return 0.0 if settings.minutes is None else seconds / (60 * settings.minutes)
