import pytest
import torch

from tensorldm.dti import fit
from tensorldm.dti.fit import (
    deviation_matrices,
    fit_ols,
    fit_ols_nonlinear_gradients,
    fit_wls,
    fit_wls_nonlinear_gradients,
)
from tensorldm.dti.packing import frobenius, pack
from tensorldm.dti.signal import design_matrix, predict_signal
from tensorldm.errors import DataError

FITS = [fit_ols, fit_wls]


def scheme(generator: torch.Generator, count: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    """Two b=0 and one shell."""
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator, dtype=torch.float64), dim=-1)
    bvals = torch.full((count,), 1000.0, dtype=torch.float64)
    return torch.nn.functional.pad(bvals, (2, 0)), torch.nn.functional.pad(directions, (0, 0, 2, 0))


def brain(generator: torch.Generator, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """White-matter tensors in all directions, and their S0."""
    frames = torch.linalg.qr(torch.randn(*shape, 3, 3, generator=generator, dtype=torch.float64))[0]
    tensors = pack((frames * torch.tensor([1.7e-3, 5e-4, 3e-4], dtype=torch.float64)) @ frames.mT)
    return tensors, 500 + 500 * torch.rand(shape, generator=generator, dtype=torch.float64)


def noisy(signal: torch.Tensor, generator: torch.Generator, *, sigma: float = 30.0) -> torch.Tensor:
    shape = (2, *signal.shape)
    real, imaginary = sigma * torch.randn(shape, generator=generator, dtype=signal.dtype)
    return torch.hypot(signal + real, imaginary)


@pytest.mark.parametrize("fit_tensor", FITS)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_a_noise_free_signal_gives_the_tensor_and_s0_back(fit_tensor, shape, generator):
    bvals, directions = scheme(generator)
    tensors, s0 = brain(generator, *shape)
    found, found_s0 = fit_tensor(predict_signal(tensors, s0, bvals, directions), bvals, directions)
    torch.testing.assert_close(found, tensors, rtol=0, atol=1e-14)
    torch.testing.assert_close(found_s0, s0)


@pytest.mark.parametrize("fit_tensor", FITS)
def test_float32_is_good_to_five_digits(fit_tensor, generator):
    bvals, directions = scheme(generator)
    tensors, s0 = brain(generator, 500)
    signal = noisy(predict_signal(tensors, s0, bvals, directions), generator)
    exact, _ = fit_tensor(signal, bvals, directions)
    single, _ = fit_tensor(signal.float(), bvals, directions)
    assert single.dtype == torch.float32
    assert (frobenius(single - exact) / frobenius(exact)).max() < 1e-5


def test_wls_weighs_by_the_squared_signal_that_ols_predicts(generator):
    bvals, directions = scheme(generator)
    tensors, s0 = brain(generator, 6)
    signal = noisy(predict_signal(tensors, s0, bvals, directions), generator)
    ols, ols_s0 = fit_ols(signal, bvals, directions)
    weights = predict_signal(ols, ols_s0, bvals, directions)
    rows = design_matrix(bvals, directions) * weights[..., None]
    expected = torch.linalg.lstsq(rows, (weights * signal.log())[..., None]).solution[..., 0]
    found, found_s0 = fit_wls(signal, bvals, directions)
    torch.testing.assert_close(found, expected[:, :6], rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(found_s0, expected[:, 6].exp())


def test_wls_is_closer_to_the_truth_than_ols_where_signals_differ_much(generator):
    bvals, directions = scheme(generator)
    tensors, s0 = brain(generator, 4000)
    signal = noisy(predict_signal(tensors, s0, 3 * bvals, directions), generator, sigma=20.0)
    errors = [frobenius(f(signal, 3 * bvals, directions)[0] - tensors).square().mean() for f in FITS]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("fit_tensor", FITS)
def test_a_signal_of_zero_or_below_counts_as_the_floor(fit_tensor, generator):
    bvals, directions = scheme(generator)
    tensors, s0 = brain(generator, 2)
    signal = predict_signal(tensors, s0, bvals, directions)
    dark = signal.clone()
    dark[0, 5], dark[1, 7] = 0.0, -3.0
    lifted = signal.clone()
    lifted[0, 5] = lifted[1, 7] = 2.0
    found, _ = fit_tensor(dark, bvals, directions, min_signal=2.0)
    torch.testing.assert_close(found, fit_tensor(lifted, bvals, directions)[0])
    assert fit_tensor(dark, bvals, directions)[0].isfinite().all()


@pytest.mark.parametrize("fit_tensor", FITS)
def test_air_and_dead_voxels_are_finite_in_float32(fit_tensor, generator):
    bvals, directions = scheme(generator)
    signal = torch.zeros(4, 22)
    signal[1] = 1e4
    signal[2, ::2] = 1e4
    signal[3] = 100 * torch.rand(22, generator=generator)
    packed, s0 = fit_tensor(signal, bvals, directions)
    assert packed.isfinite().all()
    assert s0.isfinite().all()


@pytest.mark.parametrize("fit_tensor", FITS)
def test_negative_eigenvalues_are_kept(fit_tensor, generator):
    bvals, directions = scheme(generator)
    tensors = torch.tensor([[1e-3, 5e-4, -2e-4, 0.0, 0.0, 0.0]], dtype=torch.float64)
    signal = predict_signal(tensors, torch.tensor([800.0], dtype=torch.float64), bvals, directions)
    torch.testing.assert_close(fit_tensor(signal, bvals, directions)[0], tensors, rtol=0, atol=1e-14)


@pytest.mark.parametrize("fit_tensor", FITS)
def test_working_in_chunks_changes_nothing(fit_tensor, generator, monkeypatch):
    bvals, directions = scheme(generator)
    tensors, s0 = brain(generator, 3, 50)
    signal = noisy(predict_signal(tensors, s0, bvals, directions), generator)
    whole, _ = fit_tensor(signal, bvals, directions)
    monkeypatch.setattr(fit, "_CPU_CHUNK_SIGNALS", 7 * 22)
    torch.testing.assert_close(fit_tensor(signal, bvals, directions)[0], whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("fit_tensor", FITS)
@pytest.mark.parametrize("keep", [slice(2, None), slice(0, 7)], ids=["no b=0", "five directions"])
def test_a_series_that_does_not_determine_a_tensor_is_refused(fit_tensor, keep, generator):
    bvals, directions = scheme(generator)
    signal = torch.ones(3, 22, dtype=torch.float64)
    with pytest.raises(DataError, match=r"of the 7 unknowns"):
        fit_tensor(signal[:, keep], bvals[keep], directions[keep])


def deviations(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return 0.1 * torch.randn(*shape, 9, generator=generator, dtype=torch.float64)


def effective_scheme(grad_dev: torch.Tensor, bvals: torch.Tensor, directions: torch.Tensor):
    """The words of the HCP, one voxel at a time: g' = (I + L)g, b' = b·|g'|², g' made a unit vector."""
    matrix = torch.eye(3, dtype=torch.float64) + grad_dev.reshape(3, 3).mT
    deviated = directions @ matrix.mT
    length = deviated.norm(dim=-1)
    unit = torch.where(length[:, None] > 0, deviated / length.clamp(min=1e-30)[:, None], 0)
    return bvals * length**2, unit


@pytest.mark.parametrize(
    ("fit_tensor", "fit_voxel"), [(fit_ols_nonlinear_gradients, fit_ols), (fit_wls_nonlinear_gradients, fit_wls)]
)
def test_deviating_gradients_give_the_fit_of_each_voxels_own_scheme(fit_tensor, fit_voxel, generator):
    bvals, directions = scheme(generator)
    tensors, s0 = brain(generator, 5)
    grad_dev = deviations(generator, 5)
    own = [effective_scheme(voxel, bvals, directions) for voxel in grad_dev]
    signal = torch.stack([predict_signal(t, s, *scheme_) for t, s, scheme_ in zip(tensors, s0, own, strict=True)])
    signal = noisy(signal, generator)
    expected = torch.stack([fit_voxel(voxel, *scheme_)[0] for voxel, scheme_ in zip(signal, own, strict=True)])
    found, found_s0 = fit_tensor(signal, bvals, directions, grad_dev)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-15)
    assert found_s0.shape == (5,)


def test_the_nine_numbers_of_a_deviation_are_the_matrix_by_columns():
    matrix = deviation_matrices(torch.arange(1.0, 10.0))
    assert matrix.tolist() == [[2, 4, 7], [2, 6, 8], [3, 6, 10]]
