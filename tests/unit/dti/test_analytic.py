import math

import pytest
import torch

from tensorldm.dti.analytic import ade, ade_literal, apparent_diffusion, minimum_norm
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.logarithm import EIGENVALUE_FLOOR_MM2_PER_S, log_euclidean_distance
from tensorldm.dti.packing import frobenius, pack, unpack
from tensorldm.dti.signal import predict_signal
from tensorldm.errors import DataError

AXES = torch.eye(3, dtype=torch.float64)
TILTED = torch.nn.functional.normalize(
    torch.tensor([[0.94, 0.30, -0.17], [0.21, -0.93, 0.31], [-0.40, 0.12, 0.91]], dtype=torch.float64), dim=-1
)
METHODS = [ade, ade_literal, minimum_norm]


def measure(tensors: torch.Tensor, directions: torch.Tensor, *, b: float = 1000.0) -> tuple[torch.Tensor, ...]:
    """One b=0 and the directions, S0 = 700."""
    bvals = torch.tensor([0.0] + [b] * len(directions), dtype=torch.float64)
    table = torch.nn.functional.pad(directions, (0, 0, 1, 0))
    s0 = torch.full(tensors.shape[:-1], 700.0, dtype=torch.float64)
    return predict_signal(tensors, s0, bvals, table), bvals, table


def brain(generator: torch.Generator, count: int) -> torch.Tensor:
    frames = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator, dtype=torch.float64))[0]
    return pack((frames * torch.tensor([1.7e-3, 5e-4, 3e-4], dtype=torch.float64)) @ frames.mT)


def spread(generator: torch.Generator, count: int) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(count, 3, generator=generator, dtype=torch.float64), dim=-1)


@pytest.mark.parametrize("method", METHODS)
def test_on_the_axes_every_method_reads_off_the_diagonal(method, generator):
    tensors = brain(generator, 50)
    found = method(*measure(tensors, AXES))
    torch.testing.assert_close(found[:, :3], tensors[:, :3], rtol=1e-9, atol=0)
    assert found[:, 3:].abs().max() < 1e-15


@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_ade_does_not_depend_on_order_or_sign_of_the_directions(order, generator):
    tensors = brain(generator, 20)
    for method in METHODS:
        found = method(*measure(tensors, -TILTED[order]))
        torch.testing.assert_close(found, method(*measure(tensors, TILTED)), rtol=1e-9, atol=1e-15)


def test_ade_is_exact_for_diagonal_tensors_on_tilted_directions_and_the_literal_form_is_not():
    tensors = torch.tensor([[1.7e-3, 5e-4, 3e-4, 0.0, 0.0, 0.0]], dtype=torch.float64)
    measured = measure(tensors, TILTED)
    torch.testing.assert_close(ade(*measured), tensors, rtol=1e-9, atol=1e-15)
    assert frobenius(ade_literal(*measured) - tensors).item() > 1e-4


def test_the_literal_form_takes_each_direction_once(generator):
    # The second direction is nearer to x than the first one, but the only one that can stand for y.
    directions = torch.nn.functional.normalize(
        torch.tensor([[0.80, 0.0, 0.6], [0.82, 0.57, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64), dim=-1
    )
    tensors = brain(generator, 3)
    adc = torch.einsum("ni,vij,nj->vn", directions, unpack(tensors), directions)
    torch.testing.assert_close(ade_literal(*measure(tensors, directions))[:, :3], adc, rtol=1e-9, atol=0)


def test_ade_is_positive_definite_where_noise_makes_a_signal_exceed_its_b0():
    signal, bvals, directions = measure(torch.full((1, 6), 5e-4, dtype=torch.float64), AXES)
    signal[0, 2] = 900.0
    for method in (ade, ade_literal):
        assert eigenvalues(method(signal, bvals, directions)).min().item() == pytest.approx(EIGENVALUE_FLOOR_MM2_PER_S)
    assert eigenvalues(minimum_norm(signal, bvals, directions)).min() < 0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 30])
def test_equal_adcs_give_an_isotropic_tensor_for_any_directions(count, generator):
    sphere = torch.tensor([[8e-4, 8e-4, 8e-4, 0.0, 0.0, 0.0]], dtype=torch.float64)
    for _ in range(5):
        found = minimum_norm(*measure(sphere, spread(generator, count)))
        torch.testing.assert_close(found, sphere, rtol=1e-9, atol=1e-15)


def test_the_minimum_norm_tensor_explains_the_measurements_with_the_least_anisotropy(generator):
    tensors = brain(generator, 40)
    found = minimum_norm(*measure(tensors, TILTED))
    adc = torch.einsum("ni,vij,nj->vn", TILTED, unpack(tensors), TILTED)
    torch.testing.assert_close(torch.einsum("ni,vij,nj->vn", TILTED, unpack(found), TILTED), adc, rtol=1e-9, atol=0)

    def anisotropy(packed: torch.Tensor) -> torch.Tensor:
        return frobenius(packed - packed[:, :3].mean(-1, keepdim=True) * packed.new_tensor([1, 1, 1, 0, 0, 0]))

    # Any other tensor with the same ADCs differs by something the directions do not see.
    quadratic = pack(TILTED[:, :, None] * TILTED[:, None]) * torch.tensor([1, 1, 1, 2, 2, 2])
    unseen = torch.linalg.svd(quadratic.double())[2][3:]
    for other in unseen:
        for size in (1e-6, -1e-6, 1e-4, -1e-4):
            assert (anisotropy(found + size * other) >= anisotropy(found) - 1e-15).all()


@pytest.mark.parametrize("count", [6, 12, 60])
def test_six_or_more_good_directions_give_the_tensor_itself(count, generator):
    tensors = brain(generator, 20)
    icosahedral = torch.nn.functional.normalize(
        torch.tensor(
            [[0, 1, 1.618], [0, 1, -1.618], [1, 1.618, 0], [1, -1.618, 0], [1.618, 0, 1], [-1.618, 0, 1]],
            dtype=torch.float64,
        ),
        dim=-1,
    )
    directions = torch.cat((icosahedral, spread(generator, count - 6)))
    found = minimum_norm(*measure(tensors, directions))
    assert (frobenius(found - tensors) / frobenius(tensors)).max() < 1e-9


def test_directions_that_nearly_coincide_do_not_blow_noise_up(generator):
    nearly_twice = torch.nn.functional.normalize(
        AXES[[0, 0, 1]] + torch.tensor([[0, 0, 0], [0, 0, 0.01], [0, 0, 0]]), dim=-1
    )
    signal, bvals, directions = measure(brain(generator, 200), nearly_twice.double())
    signal = signal * (1 + 0.03 * torch.randn(signal.shape, generator=generator, dtype=torch.float64))
    assert frobenius(minimum_norm(signal, bvals, directions)).max() < 5e-3


def test_minimum_norm_is_closer_than_ade_on_tilted_directions(generator):
    tensors = brain(generator, 500)
    measured = measure(tensors, TILTED)
    errors = [log_euclidean_distance(method(*measured), tensors).mean() for method in (minimum_norm, ade)]
    assert errors[0] < errors[1]


def test_several_b0_volumes_count_by_their_geometric_mean():
    signal = torch.tensor([100.0, 400.0, 200.0 * torch.e**-1, 200.0 * torch.e**-1, 200.0 * torch.e**-1])
    bvals = torch.tensor([0.0, 5.0, 1000.0, 1000.0, 1000.0])
    directions = torch.nn.functional.pad(AXES.float(), (0, 0, 2, 0))
    for method in METHODS:
        assert method(signal, bvals, directions)[:3].tolist() == pytest.approx([1e-3] * 3, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_series_without_b0_is_refused(method):
    with pytest.raises(DataError, match="no b=0 volume"):
        method(torch.ones(2, 3), torch.full((3,), 1000.0), AXES.float())


@pytest.mark.parametrize("method", [ade, ade_literal])
def test_two_directions_are_too_few_for_a_diagonal(method):
    with pytest.raises(DataError, match="Give"):
        method(torch.ones(2, 3), torch.tensor([0.0, 1000.0, 1000.0]), AXES.float())


def test_apparent_diffusion_is_the_log_ratio_to_the_geometric_mean_of_the_b0s_over_b():
    signal = torch.tensor([[400.0, 100.0, 200.0 * math.exp(-1.2), 200.0 * math.exp(-0.35)]], dtype=torch.float64)
    adc = apparent_diffusion(signal, torch.tensor([0.0, 5.0, 1000.0, 500.0], dtype=torch.float64))
    torch.testing.assert_close(adc, torch.tensor([[0.0, 0.0, 1.2e-3, 0.7e-3]], dtype=torch.float64))
