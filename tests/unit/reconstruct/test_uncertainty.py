"""Intervals and cones hold what they promise: known distributions, and what must not change them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, principal_direction
from tensorldm.dti.packing import frobenius, pack, rotate
from tensorldm.reconstruct.uncertainty import (
    MEAN_FLOOR_MM2_PER_S,
    Calibration,
    Spread,
    mean_tensor,
    measure_spread,
)

AXES = torch.eye(3, dtype=torch.float64)
TRIAD = {
    "bvals": torch.tensor([0.0, 1000.0, 1000.0, 1000.0]),
    "directions": torch.cat((torch.zeros(1, 3), torch.eye(3))),
}
FIBRE = torch.tensor([1.7e-3, 4e-4, 3e-4, 0.0, 0.0, 0.0], dtype=torch.float64)
VOXELS = 20_000


def draw(generator: torch.Generator, count: int, *, voxels: int = VOXELS, sd: float = 3e-5) -> torch.Tensor:
    """Exchangeable tensors: a fibre plus Gaussian noise that is the same in every direction (Frobenius)."""
    noise = torch.randn(count, voxels, 6, generator=generator, dtype=torch.float64) * sd
    return FIBRE + noise * torch.tensor([1, 1, 1, 0.5**0.5, 0.5**0.5, 0.5**0.5], dtype=torch.float64)


def fibres(directions: torch.Tensor) -> torch.Tensor:
    """Prolate tensors along these unit directions."""
    return pack(3e-4 * AXES + 1.4e-3 * directions.unsqueeze(-1) * directions.unsqueeze(-2))


def tilted(generator: torch.Generator, count: int, *, degrees: float, voxels: int = VOXELS) -> torch.Tensor:
    """Axes about z whose deviations in x and y are Gaussian with this SD, with random signs."""
    tangent = torch.randn(count, voxels, 2, generator=generator, dtype=torch.float64) * math.radians(degrees)
    angle = tangent.norm(dim=-1, keepdim=True)
    vector = torch.cat((tangent / angle * angle.sin(), angle.cos()), dim=-1)
    return vector * torch.randn(count, voxels, 1, generator=generator, dtype=torch.float64).sign()


def spread_of(samples: torch.Tensor, **settings: object) -> Spread:
    spread = measure_spread(samples, **TRIAD, **settings)
    assert spread is not None
    return spread


@pytest.mark.parametrize("num_samples", [2, 4, 8, 16])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_intervals_hold_a_truth_that_is_one_more_draw_as_often_as_they_say(num_samples, level, generator):
    *samples, truth = draw(generator, num_samples + 1)
    spread = spread_of(torch.stack(samples), level=level)
    for interval, of in ((spread.fa, fractional_anisotropy(truth)), (spread.md, mean_diffusivity(truth))):
        inside = ((interval.low <= of) & (of <= interval.high)).double().mean().item()
        assert inside == pytest.approx(level, abs=0.02 if level == 0.9 else 0.01)


@pytest.mark.parametrize("num_samples", [2, 4, 8, 16])
@pytest.mark.parametrize("degrees", [1.0, 8.0, 25.0])
def test_the_cone_holds_a_direction_that_is_one_more_draw_as_often_as_it_says(num_samples, degrees, generator):
    *samples, truth = tilted(generator, num_samples + 1, degrees=degrees)
    spread = spread_of(fibres(torch.stack(samples)))
    inside = (angle_degrees(truth, spread.v1) <= spread.v1_cone_degrees).double().mean().item()
    assert inside == pytest.approx(0.95, abs=0.01)


def test_with_many_samples_the_cone_is_the_distributions_own(generator):
    # Rayleigh: 95 % of the angles of a two-dimensional Gaussian lie within σ·√(−2 ln 0.05).
    spread = spread_of(fibres(tilted(generator, 400, degrees=5.0, voxels=50)))
    expected = 5.0 * math.sqrt(-2 * math.log(0.05))
    assert spread.v1_cone_degrees.mean().item() == pytest.approx(expected, rel=0.02)
    assert angle_degrees(spread.v1, AXES[2].expand(50, 3)).max() < 1.5


def test_two_directions_at_a_known_angle_give_a_known_cone():
    turn = math.radians(3.0)
    either = torch.tensor([[math.cos(turn), s * math.sin(turn), 0.0] for s in (1, -1)], dtype=torch.float64)
    spread = spread_of(fibres(either[:, None]))
    # Σθ² = 2·3²; (1 + 1/2)·18·(20 − 1).
    assert spread.v1_cone_degrees.item() == pytest.approx(math.sqrt(1.5 * 18 * 19), rel=1e-6)
    assert angle_degrees(spread.v1, AXES[:1]).item() < 1e-6


def test_directions_that_have_nothing_in_common_open_the_cone_to_90_degrees(generator):
    noise = torch.randn(9, 5000, 3, generator=generator, dtype=torch.float64)
    *samples, truth = torch.nn.functional.normalize(noise, dim=-1)
    spread = spread_of(fibres(torch.stack(samples)))
    assert spread.v1_cone_degrees.max() == 90
    assert spread.v1_cone_degrees.mean() > 88
    assert (angle_degrees(truth, spread.v1) <= spread.v1_cone_degrees).double().mean() > 0.95


@pytest.mark.parametrize("value", [0.0, 3e-3])
def test_samples_without_a_direction_have_the_widest_cone_although_they_agree(value):
    sphere = torch.tensor([value] * 3 + [0.0] * 3).expand(4, 2, 6)
    spread = spread_of(sphere)
    assert (spread.v1_cone_degrees == 90).all()
    assert (spread.fa.high == 0).all()
    assert (spread.md.sd == 0).all()


def test_one_sample_has_no_spread(generator):
    samples = draw(generator, 1, voxels=5)
    assert measure_spread(samples, **TRIAD) is None
    torch.testing.assert_close(mean_tensor(samples, "log-euclidean"), samples[0], rtol=0, atol=0)


def test_identical_samples_have_no_width(generator):
    spread = spread_of(draw(generator, 1, voxels=5).expand(4, 5, 6).contiguous())
    for width in (spread.fa.high - spread.fa.low, spread.md.high - spread.md.low, spread.prior_sd):
        assert width.max() < 1e-12
    assert spread.v1_cone_degrees.max() < 1e-5


def test_intervals_stay_within_what_is_possible(generator):
    spread = spread_of(draw(generator, 3, voxels=500, sd=1e-3))
    assert spread.fa.low.min() == 0
    assert spread.fa.high.max() == 1
    assert spread.md.low.min() == 0


def test_a_factor_widens_its_own_quantity_and_no_other(generator):
    samples = draw(generator, 4, voxels=50)
    plain = spread_of(samples)
    wide = spread_of(samples, calibration=Calibration(fa=1.5, v1=2.0))
    torch.testing.assert_close(wide.fa.high - wide.fa.mean, 1.5 * (plain.fa.high - plain.fa.mean))
    torch.testing.assert_close(wide.v1_cone_degrees, 2 * plain.v1_cone_degrees)
    torch.testing.assert_close(wide.md.low, plain.md.low, rtol=0, atol=0)
    torch.testing.assert_close(wide.fa.sd, plain.fa.sd, rtol=0, atol=0)


def test_a_factor_that_is_no_positive_number_is_refused():
    for wrong in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive"):
            Calibration(md=wrong)


def test_the_priors_spread_is_that_of_the_off_diagonals_on_an_axis_triad(generator):
    # Three off-diagonals of SD 3e-5/√2, each twice in the matrix: √3·3e-5.
    spread = spread_of(draw(generator, 400, voxels=50))
    assert spread.prior_sd.mean().item() == pytest.approx(math.sqrt(3) * 3e-5, rel=0.01)
    diagonal_only = draw(generator, 8, voxels=50) * torch.tensor([1, 1, 1, 0, 0, 0], dtype=torch.float64)
    assert spread_of(diagonal_only).prior_sd.max() == 0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_nothing_but_v1_turns_when_tensors_and_gradients_turn(seed):
    generator = torch.Generator().manual_seed(seed)
    samples = draw(generator, 4, voxels=20)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    one = spread_of(samples)
    directions = TRIAD["directions"].double() @ turn.mT
    two = measure_spread(rotate(samples, turn), bvals=TRIAD["bvals"], directions=directions)
    assert two is not None
    torch.testing.assert_close(two.fa.low, one.fa.low, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(two.v1_cone_degrees, one.v1_cone_degrees, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(two.prior_sd, one.prior_sd, rtol=1e-9, atol=1e-15)
    assert angle_degrees(two.v1, one.v1 @ turn.mT).max() < 1e-5


def test_volumes_of_any_shape_and_float32_give_the_same_as_lists(generator):
    samples = draw(generator, 4, voxels=24)
    listed = spread_of(samples)
    volume = spread_of(samples.reshape(4, 2, 3, 4, 6).float())
    assert volume.v1.shape == (2, 3, 4, 3)
    torch.testing.assert_close(volume.fa.high.flatten().double(), listed.fa.high, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(volume.v1_cone_degrees.flatten().double(), listed.v1_cone_degrees, rtol=1e-3, atol=1e-3)


def test_the_arithmetic_mean_is_the_mean_of_the_components(generator):
    samples = draw(generator, 5, voxels=7)
    torch.testing.assert_close(mean_tensor(samples), sum(samples) / 5)


def test_the_log_euclidean_mean_of_commuting_tensors_is_the_geometric_mean():
    samples = torch.stack((FIBRE, FIBRE * torch.tensor([0.25, 1, 4, 1, 1, 1], dtype=torch.float64)))[:, None]
    expected = FIBRE * torch.tensor([0.5, 1, 2, 1, 1, 1], dtype=torch.float64)
    torch.testing.assert_close(mean_tensor(samples, "log-euclidean")[0], expected)


def test_one_negative_eigenvalue_among_four_does_not_drag_the_log_euclidean_mean_down():
    samples = FIBRE.repeat(4, 1, 1)
    samples[0, 0, 2] = -1e-5
    smallest = eigenvalues(mean_tensor(samples, "log-euclidean"))[0, 2].item()
    assert smallest == pytest.approx(3e-4 * (MEAN_FLOOR_MM2_PER_S / 3e-4) ** 0.25)
    assert smallest > 0.75 * 3e-4
    assert eigenvalues(mean_tensor(samples, "log-euclidean", floor=1e-6))[0, 2].item() < 0.25 * 3e-4


def test_the_mean_of_eigenvalues_keeps_the_shape_of_samples_that_point_different_ways(generator):
    samples = fibres(tilted(generator, 8, degrees=25, voxels=500))
    found, plain = mean_tensor(samples, "eigenvalues"), mean_tensor(samples)
    torch.testing.assert_close(eigenvalues(found), eigenvalues(samples[0]))
    assert (fractional_anisotropy(plain) < fractional_anisotropy(found) - 0.02).all()
    torch.testing.assert_close(mean_diffusivity(found), mean_diffusivity(plain))
    assert angle_degrees(principal_direction(found), principal_direction(plain)).max() < 0.01


def test_the_arithmetic_mean_of_noisy_draws_is_nearer_to_the_truth_than_one_draw(generator):
    samples = draw(generator, 8, voxels=200)
    one, mean = (frobenius(t - FIBRE).square().mean().item() for t in (samples[0], mean_tensor(samples)))
    assert mean == pytest.approx(one / 8, rel=0.15)
