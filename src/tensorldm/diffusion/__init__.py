"""Noise schedules and samplers; knows no network."""

from tensorldm.diffusion.samplers import SAMPLERS, Denoise, Sampler, ddim, dpm_solver_2m, sample
from tensorldm.diffusion.schedule import (
    NoiseSchedule,
    Prediction,
    Spacing,
    StepPair,
    add_noise,
    linear_schedule,
    log_snr_pairs,
    prediction_target,
    split_prediction,
    step_pairs,
    trailing_pairs,
)

__all__ = [
    "SAMPLERS",
    "Denoise",
    "NoiseSchedule",
    "Prediction",
    "Sampler",
    "Spacing",
    "StepPair",
    "add_noise",
    "ddim",
    "dpm_solver_2m",
    "linear_schedule",
    "log_snr_pairs",
    "prediction_target",
    "sample",
    "split_prediction",
    "step_pairs",
    "trailing_pairs",
]
