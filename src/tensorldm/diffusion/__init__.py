"""Noise schedules and samplers; knows no network."""

from tensorldm.diffusion.samplers import SAMPLERS, Denoise, Sampler, ddim, dpm_solver_2m, sample
from tensorldm.diffusion.schedule import (
    NoiseSchedule,
    Prediction,
    StepPair,
    add_noise,
    linear_schedule,
    prediction_target,
    split_prediction,
    trailing_pairs,
)

__all__ = [
    "SAMPLERS",
    "Denoise",
    "NoiseSchedule",
    "Prediction",
    "Sampler",
    "StepPair",
    "add_noise",
    "ddim",
    "dpm_solver_2m",
    "linear_schedule",
    "prediction_target",
    "sample",
    "split_prediction",
    "trailing_pairs",
]
