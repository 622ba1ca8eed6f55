"""Quantile regression against the exact linear programme, and against quantiles that are known."""

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import norm

from tensorldm.reconstruct.quantiles import fit_quantile


def exact(design: np.ndarray, values: np.ndarray, level: float) -> float:
    """The least pinball loss that any coefficients have, as a linear programme in their excess and shortfall."""
    count, parameters = design.shape
    cost = np.concatenate([np.zeros(parameters), np.full(count, level), np.full(count, 1 - level)])
    equal = np.hstack([design, np.eye(count), -np.eye(count)])
    bounds = [(None, None)] * parameters + [(0, None)] * (2 * count)
    return float(linprog(cost, A_eq=equal, b_eq=values, bounds=bounds, method="highs").fun)


def pinball(design: np.ndarray, values: np.ndarray, level: float, coefficients: np.ndarray) -> float:
    rest = values - design @ coefficients
    return float(np.where(rest > 0, level * rest, (level - 1) * rest).sum())


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_no_other_coefficients_have_a_smaller_loss(level):
    random = np.random.default_rng(3)
    design = random.dirichlet([0.5, 0.5, 0.5], size=300)
    values = design @ [0.1, 1.0, -0.5] + random.standard_t(3, size=300) * (1 + design[:, 0])
    found = fit_quantile(design, values, level=level)
    assert pinball(design, values, level, found) == pytest.approx(exact(design, values, level), rel=1e-4)


def test_groups_have_their_own_quantiles():
    random = np.random.default_rng(4)
    group = random.integers(0, 2, size=40_000)
    values = random.normal(loc=np.array([0.0, 5.0])[group], scale=np.array([1.0, 3.0])[group])
    found = fit_quantile(np.eye(2)[group], values, level=0.9)
    assert found == pytest.approx([norm.ppf(0.9), 5 + 3 * norm.ppf(0.9)], abs=0.05)


def test_the_level_holds_in_each_soft_class():
    random = np.random.default_rng(5)
    shares = random.dirichlet([0.3, 0.3, 0.3], size=20_000)
    values = random.standard_t(4, size=20_000) * (0.5 + 2 * shares[:, 1])
    below = values <= shares @ fit_quantile(shares, values, level=0.9)
    assert (below[:, None] * shares).sum(axis=0) / shares.sum(axis=0) == pytest.approx([0.9] * 3, abs=2e-3)
