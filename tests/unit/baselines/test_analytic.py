"""Every method through its contract: what it may see, what it returns, and where it is exact."""

import numpy as np
import pytest
import torch

from tensorldm.baselines.analytic import ANALYTIC, REFERENCE, analytic_method
from tensorldm.baselines.scan import Scan
from tensorldm.dti.signal import predict_signal
from tensorldm.errors import ConfigError, DataError
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.volume import Space

SHAPE = (4, 3, 2)


def spread_directions(count: int) -> np.ndarray:
    """A spiral over the half sphere, begun with the three axes."""
    k = np.arange(count - 3) + 0.5
    z, turn = 1 - k / (count - 3), np.pi * (1 + 5**0.5) * k
    ring = np.sqrt(1 - z**2)
    return np.concatenate([np.eye(3), np.column_stack([ring * np.cos(turn), ring * np.sin(turn), z])])


@pytest.fixture
def truth() -> np.ndarray:
    roots = np.random.default_rng(1).normal(scale=0.012, size=(*SHAPE, 3, 3))
    matrices = roots @ np.swapaxes(roots, -1, -2) + 3e-4 * np.eye(3)
    return np.stack([matrices[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], axis=-1)


def scan_of(truth: np.ndarray, *, count: int = 15) -> Scan:
    """A noise-free series: b=0 at places 0 and 5, directions at b=1000 between them."""
    bvals = np.insert(np.full(count, 1000.0), [0, 4], 0.0)
    directions = np.insert(spread_directions(count), [0, 4], 0.0, axis=0)
    s0 = torch.full(SHAPE, 700.0, dtype=torch.float64)
    arguments = torch.from_numpy(truth), s0, torch.from_numpy(bvals), torch.from_numpy(directions)
    signal = predict_signal(*arguments).numpy().astype(np.float32)
    mask = np.ones(SHAPE, dtype=bool)
    mask[0, 0, 0] = False
    return Scan(signal, GradientTable(bvals, directions), mask, Space(SHAPE, np.diag([2.0, 2.0, 2.0, 1.0])))


@pytest.mark.parametrize("method", [REFERENCE, ANALYTIC["ols-6"], ANALYTIC["ols-12"]], ids=lambda m: m.name)
def test_least_squares_recovers_a_noise_free_tensor(method, truth):
    scan = scan_of(truth)
    estimate = method.reconstruct(scan)
    np.testing.assert_allclose(estimate.packed[scan.mask], truth[scan.mask], atol=2e-8)


@pytest.mark.parametrize("name", ["ade", "ade-literal", "minimum-norm"])
def test_three_axis_directions_give_the_diagonal_and_no_more(name, truth):
    scan = scan_of(truth)
    estimate = ANALYTIC[name].reconstruct(scan)
    np.testing.assert_allclose(estimate.packed[scan.mask][:, :3], truth[scan.mask][:, :3], atol=2e-8)
    np.testing.assert_allclose(estimate.packed[..., 3:], 0, atol=2e-8)


@pytest.mark.parametrize("method", [REFERENCE, *ANALYTIC.values()], ids=lambda m: m.name)
def test_nothing_is_written_outside_the_mask(method, truth):
    estimate = method.reconstruct(scan_of(truth))
    assert not estimate.packed[0, 0, 0].any()
    assert estimate.packed[1, 0, 0].any()


@pytest.mark.parametrize(("name", "directions"), [("ade", 3), ("minimum-norm", 3), ("ols-6", 6), ("ols-12", 12)])
def test_a_method_tells_the_one_b0_and_the_directions_it_used(name, directions, truth):
    volumes = ANALYTIC[name].reconstruct(scan_of(truth)).volumes
    assert volumes[0] == 0
    assert len(set(volumes)) == 1 + directions
    assert 5 not in volumes


@pytest.mark.parametrize("name", list(ANALYTIC))
def test_a_method_sees_only_the_volumes_it_tells(name, truth):
    scan = scan_of(truth)
    estimate = ANALYTIC[name].reconstruct(scan)
    others = [i for i in range(scan.signal.shape[-1]) if i not in estimate.volumes]
    spoiled = scan.signal.copy()
    spoiled[..., others] = 1.0
    again = ANALYTIC[name].reconstruct(Scan(spoiled, scan.gradients, scan.mask, scan.space))
    np.testing.assert_array_equal(estimate.packed, again.packed)


def test_the_reference_uses_every_volume(truth):
    assert REFERENCE.reconstruct(scan_of(truth)).volumes == tuple(range(17))


def test_too_few_directions_for_a_method_is_told(truth):
    with pytest.raises(DataError, match="12 directions asked for"):
        ANALYTIC["ols-12"].reconstruct(scan_of(truth, count=8))


def test_an_unknown_method_is_told_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'ADE'.*ade, ade-literal, minimum-norm, ols-6, ols-12"):
        analytic_method("ADE")


@pytest.mark.parametrize("method", [REFERENCE, *ANALYTIC.values()], ids=lambda m: m.name)
def test_a_zero_that_the_scanner_wrote_stays_a_plausible_diffusivity(method, truth):
    scan = scan_of(truth)
    broken = scan.signal.copy()
    broken[1, 1, 1, 1:5] = 0.0
    estimate = method.reconstruct(Scan(broken, scan.gradients, scan.mask, scan.space))
    assert np.abs(estimate.packed[1, 1, 1]).max() < 1e-2


def test_the_signal_floor_follows_the_scanners_units(truth):
    scan = scan_of(truth)
    louder = Scan(scan.signal * 50, scan.gradients, scan.mask, scan.space)
    assert louder.signal_floor == pytest.approx(50 * scan.signal_floor)
    assert scan.signal_floor == pytest.approx(0.7, rel=1e-5)
