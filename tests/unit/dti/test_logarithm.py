"""Matrix functions against closed forms, and their gradients where eigenvalues coincide."""

import pytest
import torch
from torch import Tensor

from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.logarithm import (
    CONTINUATION_FLOOR_MM2_PER_S,
    EIGENVALUE_FLOOR_MM2_PER_S,
    exp,
    log,
    log_continued,
    log_euclidean_distance,
    log_euclidean_mean,
    project_spd,
)
from tensorldm.dti.packing import frobenius, pack, rotate, unpack

SHAPES = {
    "orthotropic": (3.0, 2.0, 1.0),
    "isotropic": (1.0, 1.0, 1.0),
    "prolate": (3.0, 1.0, 1.0),
    "oblate": (3.0, 3.0, 1.0),
    "nearly isotropic": (1.0 + 1e-9, 1.0, 1.0 - 1e-9),
    "nearly prolate": (3.0, 1.0 + 1e-5, 1.0),
}


def turned(values: tuple[float, ...], generator: torch.Generator, count: int = 4) -> Tensor:
    frames = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator, dtype=torch.float64))[0]
    return pack((frames * torch.tensor(values, dtype=torch.float64)) @ frames.mT)


def test_the_exponential_is_the_power_series(generator):
    tensors = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(unpack(exp(tensors)), torch.linalg.matrix_exp(unpack(tensors)))


def test_the_logarithm_undoes_the_exponential(generator):
    tensors = torch.randn(8, 6, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(log(exp(tensors)), tensors)


def test_brain_tensors_survive_log_and_exp_in_float32(generator):
    tensors = turned((1.7e-3, 4e-4, 3e-4), generator, 200).float()
    relative = frobenius(exp(log(tensors)) - tensors) / frobenius(tensors)
    assert relative.max() < 5e-6  # rounding of logarithms near −8


def test_the_logarithm_clamps_eigenvalues_at_the_floor(generator):
    tensors = turned((1e-3, 1e-9, -1e-3), generator)
    floor = EIGENVALUE_FLOOR_MM2_PER_S
    expected = torch.tensor([1e-3, floor, floor], dtype=torch.float64).log()
    torch.testing.assert_close(eigenvalues(log(tensors)), expected.expand(4, 3))


@pytest.mark.parametrize("values", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("function", [log, log_continued, exp, project_spd])
def test_gradients_are_those_of_finite_differences(function, values, generator):
    tensors = turned(values, generator).requires_grad_()
    assert torch.autograd.gradcheck(function, tensors)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda x: log(x, floor=0.1), (2.0, 1.0, -0.5)),
        (lambda x: log(x, floor=0.1), (2.0, -0.5, -0.5)),
        (lambda x: log(x, floor=0.1), (0.0, 0.0, 0.0)),
        (lambda x: log_continued(x, floor=0.1), (2.0, 1.0, -0.5)),
        (lambda x: log_continued(x, floor=0.1), (0.0, 0.0, 0.0)),
        (lambda x: log_continued(x, floor=0.1), (0.1, 0.1, -1.0)),
        (lambda x: project_spd(x, floor=0.1), (2.0, -0.5, -0.5)),
        (exp, (0.0, 0.0, 0.0)),
    ],
)
def test_gradients_are_right_across_and_below_the_floor(function, values, generator):
    tensors = turned(values, generator).requires_grad_()
    # Second-order differences: the continued form has a kink in its second derivative at the floor.
    assert torch.autograd.gradcheck(function, tensors, eps=1e-7, atol=1e-4)


def test_gradients_in_float32_agree_with_float64_for_brain_tensors(generator):
    for values in ((1.7e-3, 4e-4, 4e-4), (3e-3, 3e-3, 3e-3), (8e-4, 8e-4 * (1 + 1e-6), -1e-4)):
        wide = turned(values, generator).requires_grad_()
        narrow = wide.detach().float().requires_grad_()
        for tensors in (wide, narrow):
            (log_continued(tensors) ** 2).sum().backward()
        assert narrow.grad.isfinite().all()
        relative = (narrow.grad - wide.grad).abs().max() / wide.grad.abs().max()
        assert relative < 1e-3


def test_the_continued_logarithm_is_the_logarithm_above_its_floor(generator):
    tensors = turned((1e-3, 2e-4, 6e-5), generator)
    torch.testing.assert_close(log_continued(tensors), log(tensors))


def test_the_continued_logarithm_is_continuous_with_its_slope():
    floor = CONTINUATION_FLOOR_MM2_PER_S
    step = floor * 1e-6
    x = torch.tensor([floor - step, floor, floor + step], dtype=torch.float64)
    y = log_continued(torch.nn.functional.pad(x[:, None].expand(3, 3), (0, 3)))[:, 0]
    slopes = y.diff() / step
    assert abs(slopes[0] - slopes[1]) < 1e-4 * slopes[0]


def test_one_step_on_the_log_euclidean_loss_raises_a_negative_eigenvalue(generator):
    truth = turned((1.7e-3, 4e-4, 3e-4), generator)
    guess = turned((1.5e-3, 4e-4, -2e-4), generator).requires_grad_()
    frobenius(log_continued(guess) - log_continued(truth)).sum().backward()
    with torch.no_grad():
        stepped = guess - 1e-10 * guess.grad
    assert (eigenvalues(stepped)[:, 2] > eigenvalues(guess)[:, 2]).all()


def test_clamping_gives_a_negative_eigenvalue_no_pull_which_is_why_the_loss_has_its_own_form():
    guess = torch.tensor([1e-3, 5e-4, -2e-4, 0, 0, 0], dtype=torch.float64, requires_grad=True)
    log_euclidean_distance(guess, torch.tensor([1e-3, 5e-4, 3e-4, 0, 0, 0], dtype=torch.float64)).backward()
    assert guess.grad[2] == 0


def test_projection_raises_what_is_below_the_floor_and_leaves_the_rest(generator):
    mixed = turned((1e-3, 4e-4, -3e-4), generator)
    projected = eigenvalues(project_spd(mixed))
    torch.testing.assert_close(
        projected, torch.tensor([[1e-3, 4e-4, EIGENVALUE_FLOOR_MM2_PER_S]], dtype=torch.float64).expand(4, 3)
    )
    positive = turned((1e-3, 4e-4, 3e-4), generator)
    torch.testing.assert_close(project_spd(positive), positive)


def test_distance_between_aligned_tensors_is_that_of_their_log_eigenvalues():
    a = torch.tensor([1e-3, 1e-3, 1e-3, 0, 0, 0], dtype=torch.float64)
    b = torch.tensor([1e-3, 1e-3 * torch.e, 1e-3 / torch.e**2, 0, 0, 0], dtype=torch.float64)
    assert log_euclidean_distance(a, b).item() == pytest.approx(5**0.5)


def test_distance_does_not_change_under_inversion(generator):
    a, b = turned((3.0, 2.0, 1.0), generator), turned((5.0, 1.0, 0.5), generator)
    inverse_a, inverse_b = (pack(torch.linalg.inv(unpack(x))) for x in (a, b))
    torch.testing.assert_close(log_euclidean_distance(a, b), log_euclidean_distance(inverse_a, inverse_b))


def test_the_mean_has_the_geometric_mean_of_the_determinants(generator):
    stack = torch.stack([turned((3.0, 2.0, 1.0), generator), turned((9.0, 0.5, 0.3), generator)])
    determinants = torch.linalg.det(unpack(stack))
    mean = log_euclidean_mean(stack)
    torch.testing.assert_close(torch.linalg.det(unpack(mean)), determinants.prod(dim=0).sqrt())


def test_the_mean_of_a_tensor_and_its_quarter_turn_does_not_swell():
    along_x = torch.tensor([4.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    along_y = rotate(along_x, torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    mean = log_euclidean_mean(torch.stack([along_x, along_y]))
    torch.testing.assert_close(mean, torch.tensor([2.0, 2.0, 1.0, 0.0, 0.0, 0.0]))


def test_weights_need_not_sum_to_one_and_no_weight_gives_no_tensor(generator):
    a, b = turned((3.0, 2.0, 1.0), generator, 3), turned((5.0, 1.0, 0.5), generator, 3)
    weights = torch.tensor([[3.0, 1.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    mean = log_euclidean_mean(torch.stack([a, b]), weights)
    torch.testing.assert_close(mean[0], a[0])
    torch.testing.assert_close(mean[1], log_euclidean_mean(torch.stack([a, b]))[1])
    assert torch.equal(mean[2], torch.zeros(6, dtype=torch.float64))


@pytest.mark.parametrize("function", [log, exp, log_continued, project_spd])
def test_an_empty_voxel_list_stays_empty(function):
    empty = torch.zeros(0, 6, requires_grad=True)
    result = function(empty)
    result.sum().backward()
    assert result.shape == (0, 6)
    assert empty.grad.shape == (0, 6)
