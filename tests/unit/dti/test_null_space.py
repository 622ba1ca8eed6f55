"""What the directions leave open: against brute force, closed forms and the minimum-norm tensor."""

import numpy as np
import pytest
import torch
from scipy.linalg import null_space

from tensorldm.dti.analytic import minimum_norm
from tensorldm.dti.null_space import null_space_projector, prior_share, unmeasured_anisotropy
from tensorldm.dti.packing import frobenius, pack, rotate, unpack
from tensorldm.dti.signal import predict_signal

AXES = torch.eye(3, dtype=torch.float64)
TILTED = torch.nn.functional.normalize(
    torch.tensor([[0.94, 0.30, -0.17], [0.21, -0.93, 0.31], [-0.40, 0.12, 0.91]], dtype=torch.float64), dim=-1
)
SIX = torch.nn.functional.normalize(  # the corners of an icosahedron
    torch.tensor(
        [[0, 1, 1.618], [0, 1, -1.618], [1, 1.618, 0], [1, -1.618, 0], [1.618, 0, 1], [-1.618, 0, 1]],
        dtype=torch.float64,
    ),
    dim=-1,
)


def table(directions: torch.Tensor, *, b: float = 1000.0) -> tuple[torch.Tensor, torch.Tensor]:
    """A b=0, then the directions."""
    bvals = torch.tensor([0.0] + [b] * len(directions), dtype=torch.float64)
    return bvals, torch.nn.functional.pad(directions, (0, 0, 1, 0))


def random_tensors(generator: torch.Generator, count: int) -> torch.Tensor:
    factors = torch.randn(count, 3, 3, generator=generator, dtype=torch.float64) * 0.02
    return pack(factors @ factors.mT)


def random_rotation(generator: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]


def traceless(packed: torch.Tensor) -> torch.Tensor:
    matrices = unpack(packed)
    mean = matrices.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    return pack(matrices - mean[..., None, None] * AXES)


def test_on_the_axes_the_unmeasured_part_is_the_off_diagonals(generator):
    tensors = random_tensors(generator, 20)
    found = tensors @ null_space_projector(*table(AXES)).mT
    expected = torch.cat((torch.zeros(20, 3, dtype=torch.float64), tensors[:, 3:]), dim=-1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(unmeasured_anisotropy(tensors, *table(AXES)), expected)


def test_an_axis_triad_makes_off_diagonals_wholly_prior_and_the_diagonal_wholly_data():
    off_diagonal = torch.tensor([[1e-3, 1e-3, 1e-3, 3e-4, -2e-4, 1e-4]], dtype=torch.float64)
    diagonal = torch.tensor([[1.7e-3, 3e-4, 3e-4, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert prior_share(off_diagonal, *table(AXES)).item() == pytest.approx(1)
    assert prior_share(diagonal, *table(AXES)).item() == 0


def test_a_fibre_at_45_degrees_between_measured_axes_is_mostly_prior():
    # λ = (1.7, 0.3, 0.3)e-3 along (x + y)/√2: deviatoric norm 1.4e-3·√(2/3), off-diagonal part 0.7e-3·√2.
    fibre = torch.tensor([[1e-3, 1e-3, 3e-4, 7e-4, 0.0, 0.0]], dtype=torch.float64)
    assert prior_share(fibre, *table(AXES)).item() == pytest.approx(0.7 * 2**0.5 / (1.4 * (2 / 3) ** 0.5))


def test_six_good_directions_leave_nothing_to_the_prior(generator):
    assert null_space_projector(*table(SIX)).abs().max() == 0
    assert prior_share(random_tensors(generator, 50), *table(SIX)).max() == 0


@pytest.mark.parametrize("directions", [AXES, TILTED, SIX[:4], SIX[:5], TILTED[:2], TILTED[:1]])
def test_the_projector_is_that_of_the_brute_force_null_space(directions):
    # Nine unconstrained matrix entries: gᵀAg = 0, and A = Aᵀ as three more equations.
    rows = [np.outer(g, g).ravel() for g in directions.numpy()]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        antisymmetric = np.zeros((3, 3))
        antisymmetric[i, j], antisymmetric[j, i] = 1, -1
        rows.append(antisymmetric.ravel())
    basis = null_space(np.array(rows))
    units = unpack(torch.eye(6, dtype=torch.float64)).reshape(6, 9).numpy()
    expected = pack(torch.from_numpy((units @ basis @ basis.T).reshape(6, 3, 3))).mT
    torch.testing.assert_close(null_space_projector(*table(directions)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("directions", [AXES, TILTED, SIX[:4], SIX[:5]])
def test_adding_an_unmeasured_tensor_changes_no_signal(directions, generator):
    tensors = random_tensors(generator, 10)
    hidden = random_tensors(generator, 10) @ null_space_projector(*table(directions)).mT
    assert frobenius(hidden).min() > 1e-6
    s0 = torch.full((10,), 500.0, dtype=torch.float64)
    before, after = (predict_signal(d, s0, *table(directions)) for d in (tensors, tensors + hidden))
    torch.testing.assert_close(after, before, rtol=1e-10, atol=0)


@pytest.mark.parametrize("directions", [AXES, TILTED, SIX[:4], SIX])
def test_what_is_left_is_the_least_anisotropic_tensor_with_the_same_signals(directions, generator):
    tensors = random_tensors(generator, 30)
    s0 = torch.ones(30, dtype=torch.float64)
    least = minimum_norm(predict_signal(tensors, s0, *table(directions)), *table(directions), min_signal=1e-30)
    left = traceless(tensors) - unmeasured_anisotropy(tensors, *table(directions))
    torch.testing.assert_close(left, traceless(least), rtol=1e-6, atol=1e-12)


def test_an_isotropic_tensor_has_no_prior_share_even_on_tilted_directions():
    for dtype in (torch.float32, torch.float64):
        sphere = torch.tensor([[3e-3, 3e-3, 3e-3, 0, 0, 0], [0.0] * 6], dtype=dtype)
        assert prior_share(sphere, *table(TILTED)).max() == 0


@pytest.mark.parametrize("directions", [AXES, TILTED, SIX[:4]])
def test_turning_tensor_and_directions_together_changes_nothing(directions, generator):
    tensors, turn = random_tensors(generator, 30), random_rotation(generator)
    share = prior_share(tensors, *table(directions))
    turned = prior_share(rotate(tensors, turn), *table(directions @ turn.mT))
    assert share.std() > 0.05
    torch.testing.assert_close(turned, share, rtol=1e-9, atol=1e-9)


def test_the_share_lies_between_0_and_1_and_does_not_depend_on_the_tensors_size(generator):
    tensors = random_tensors(generator, 200)
    share = prior_share(tensors, *table(TILTED))
    assert 0 <= share.min() < 0.5 < share.max() <= 1
    torch.testing.assert_close(prior_share(1e3 * tensors, *table(TILTED)), share)
    torch.testing.assert_close(prior_share(tensors.float(), *table(TILTED)).double(), share, rtol=1e-4, atol=1e-5)


def test_one_direction_measures_no_anisotropy_and_a_lone_b0_nothing(generator):
    tensors = random_tensors(generator, 10)
    for directions in (TILTED[:1], TILTED[:0]):
        torch.testing.assert_close(prior_share(tensors, *table(directions)), torch.ones(10, dtype=torch.float64))


def test_six_directions_that_hardly_leave_the_axes_count_as_three():
    wobble = torch.nn.functional.normalize(AXES + 0.01 * AXES[[1, 2, 0]], dim=-1)
    jittered = torch.cat((AXES, wobble))
    fibre = torch.tensor([[1e-3, 1e-3, 3e-4, 7e-4, 0.0, 0.0]], dtype=torch.float64)
    expected = prior_share(fibre, *table(AXES))
    torch.testing.assert_close(prior_share(fibre, *table(jittered)), expected, rtol=0.02, atol=0)


def test_a_volume_of_low_weighting_does_not_pass_for_a_measurement():
    bvals, directions = table(SIX)
    bvals[-1] = 60.0  # s/mm², beside five volumes of 1000
    assert torch.linalg.matrix_rank(null_space_projector(bvals, directions)) == 1


@pytest.mark.parametrize(("directions", "open_patterns"), [(AXES, 3), (TILTED, 3), (SIX[:4], 2), (SIX[:5], 1)])
def test_of_fibres_in_all_directions_the_prior_has_one_fifth_for_each_open_pattern(
    directions, open_patterns, generator
):
    # Five patterns of anisotropy; over all orientations of a tensor each has the same share of the squared norm.
    fibre = torch.tensor([1.7e-3, 4e-4, 3e-4, 0.0, 0.0, 0.0], dtype=torch.float64)
    turns = torch.linalg.qr(torch.randn(20_000, 3, 3, generator=generator, dtype=torch.float64))[0]
    share = prior_share(rotate(fibre.expand(20_000, 6), turns), *table(directions))
    assert share.square().mean().item() == pytest.approx(open_patterns / 5, abs=0.01)
