"""The probe from sums alone is ordinary least squares on all voxels together."""

import numpy as np
import pytest
import torch

from tensorldm.experiments.linear_probe import fit, joined, moments, r_squared
from tensorldm.experiments.model_studies import judged


def draw(count: int, seed: int, channels: int = 5):
    rng = np.random.default_rng(seed)
    features = rng.normal(loc=seed, scale=1 + seed, size=(count, channels))
    target = features @ np.arange(1, channels + 1) + rng.normal(scale=2, size=count) + 7
    return torch.from_numpy(features), torch.from_numpy(target)


def test_weights_are_those_of_numpys_least_squares_on_all_voxels():
    parts = [draw(200, 0), draw(350, 1), draw(120, 2)]
    probe = fit(joined([moments(*part) for part in parts]))
    features = np.concatenate([part[0].numpy() for part in parts])
    target = np.concatenate([part[1].numpy() for part in parts])
    expected = np.linalg.lstsq(np.column_stack([features, np.ones(len(features))]), target, rcond=None)[0]
    assert probe.weights.numpy() == pytest.approx(expected[:-1], rel=1e-6)
    assert probe.offset == pytest.approx(expected[-1], rel=1e-5)


def test_r_squared_is_that_of_the_predicted_voxels():
    probe = fit(moments(*draw(300, 0)))
    features, target = draw(200, 3)
    predicted = features @ probe.weights + probe.offset
    expected = 1 - ((target - predicted) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    assert r_squared(probe, moments(features, target)) == pytest.approx(float(expected), rel=1e-9)


def test_a_linear_target_is_explained_wholly_on_unseen_subjects_and_noise_not_at_all():
    exact = [
        (x, x @ torch.tensor([1.0, -2, 3, 0, 5], dtype=torch.float64) + 4) for x, _ in (draw(90, s) for s in (0, 1))
    ]
    assert judged([moments(*exact[0])], moments(*exact[1])) == pytest.approx(1.0, abs=1e-6)
    noise = [(x, torch.from_numpy(np.random.default_rng(s).normal(size=len(x)))) for s, (x, _) in enumerate(exact)]
    assert judged([moments(*noise[0])], moments(*noise[1])) < 0.05


def test_repeated_and_constant_channels_do_not_break_it():
    features, target = draw(150, 0)
    doubled = torch.cat([features, features, torch.ones(150, 1, dtype=torch.float64)], dim=1)
    once, twice = (r_squared(fit(moments(each, target)), moments(each, target)) for each in (features, doubled))
    assert twice == pytest.approx(once, abs=1e-6)


def test_joining_is_the_same_in_any_order():
    parts = [moments(*draw(60 + 10 * s, s)) for s in range(3)]
    first, second = joined(parts), joined(parts[::-1])
    assert torch.allclose(first.feature_products, second.feature_products)
    assert first.target_squares == pytest.approx(second.target_squares)
    assert first.count == second.count == 60 + 70 + 80
