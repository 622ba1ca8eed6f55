"""The reference fit: each named method is that method, and the floor keeps zeros from becoming diffusivities."""

import numpy as np
import pytest
import torch
from dipy.core.gradients import gradient_table
from dipy.reconst.dti import TensorModel

from tensorldm.data.reference import noise_level, reference_tensor
from tensorldm.dti.packing import pack
from tensorldm.dti.signal import predict_signal


@pytest.fixture(scope="module")
def series():
    """Noisy signals of 40 random positive tensors, 2 b=0 and 30 directions; and the tensors."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(40, 3, 3)) * 0.012
    tensors = torch.from_numpy(root @ root.transpose(0, 2, 1) + 3e-4 * np.eye(3))
    vectors = rng.normal(size=(32, 3))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[:2] = 0
    bvals, directions = torch.full((32,), 1000.0, dtype=torch.float64), torch.from_numpy(vectors)
    bvals[:2] = 0
    clean = predict_signal(pack(tensors), torch.full((40,), 800.0, dtype=torch.float64), bvals, directions)
    noisy = clean + torch.from_numpy(rng.normal(size=clean.shape)) * 8
    return noisy, bvals, directions, pack(tensors)


def fitted(series, fit, signal=None):
    noisy, bvals, directions, _ = series
    return reference_tensor(noisy if signal is None else signal, bvals, directions=directions, fit=fit, b0_scale=800.0)


def test_ordinary_least_squares_is_that_of_numpy(series):
    noisy, bvals, directions, _ = series
    x, y, z = directions.numpy().T
    design = np.stack([x * x, y * y, z * z, 2 * x * y, 2 * x * z, 2 * y * z], axis=1) * -bvals.numpy()[:, None]
    design = np.column_stack([design, np.ones(len(bvals))])
    expected = np.linalg.lstsq(design, np.log(noisy.numpy()).T, rcond=None)[0][:6].T
    np.testing.assert_allclose(fitted(series, "ols").numpy(), expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("fit", ["wls", "nlls"])
def test_weighted_and_nonlinear_fits_are_those_of_dipy(series, fit):
    noisy, bvals, directions, _ = series
    table = gradient_table(bvals.numpy(), bvecs=directions.numpy(), b0_threshold=50)
    expected = TensorModel(table, fit_method=fit.upper()).fit(noisy.numpy()).quadratic_form
    inside = np.linalg.eigvalsh(expected)[:, 0] > 1e-5  # DIPY clips elsewhere
    assert inside.mean() > 0.9
    ours = fitted(series, fit).numpy()[inside]
    np.testing.assert_allclose(ours, pack(torch.from_numpy(expected)).numpy()[inside], rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("fit", ["ols", "wls", "nlls", "restore"])
def test_every_fit_comes_near_the_truth(series, fit):
    error = (fitted(series, fit) - series[3]).norm(dim=1) / series[3].norm(dim=1)
    assert error.median() < 0.05


def test_restore_withstands_a_spoilt_volume_that_ordinary_least_squares_does_not(series):
    spoilt = series[0].clone()
    spoilt[:, 7] *= 0.3
    errors = {
        fit: float(((fitted(series, fit, spoilt) - series[3]).norm(dim=1) / series[3].norm(dim=1)).median())
        for fit in ("ols", "restore")
    }
    assert errors["restore"] < 0.06
    assert errors["ols"] > 2 * errors["restore"]


def test_the_noise_level_is_found_from_residuals(series):
    noisy, bvals, directions, _ = series
    assert noise_level(noisy, bvals, directions=directions) == pytest.approx(8, rel=0.15)


def test_a_zero_in_the_series_does_not_become_an_absurd_diffusivity(series):
    spoilt = series[0].clone()
    spoilt[:, 9] = 0
    found = fitted(series, "ols", spoilt)
    assert found.abs().max() < 5e-3
    spoilt[:, 9] = 0.8  # a thousandth of the b=0 scale
    torch.testing.assert_close(found, fitted(series, "ols", spoilt))
