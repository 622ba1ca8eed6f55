"""Residuals in units of the noise: 1 where the tensor is right, whatever the SNR; more where it is wrong."""

from pathlib import Path

import pytest
import scipy.stats
import torch

from tensorldm.cohort.scanner import add_noise
from tensorldm.dti.analytic import minimum_norm
from tensorldm.dti.axes import nearest_to_axes
from tensorldm.dti.fit import fit_ols
from tensorldm.dti.signal import predict_signal
from tensorldm.errors import DataError
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.mask import find_brain, mean_b0
from tensorldm.imaging.nifti import read_volume
from tensorldm.reconstruct.consistency import _rician, consistency
from tensorldm.reconstruct.noise import noise_sigma

S0 = 1000.0
VOXELS = 40_000
FIBRE = torch.tensor([1.2e-3, 8e-4, 3e-4, 3e-4, -1e-4, 2e-4], dtype=torch.float64).expand(VOXELS, 6)
AXES = torch.eye(3, dtype=torch.float64)


def table(num_b0: int, *, b: float = 1000.0) -> tuple[torch.Tensor, torch.Tensor]:
    bvals = torch.tensor([0.0] * num_b0 + [b] * 3, dtype=torch.float64)
    return bvals, torch.nn.functional.pad(AXES, (0, 0, num_b0, 0))


def scan(generator: torch.Generator, snr: float, *, num_b0: int = 1, b: float = 1000.0) -> torch.Tensor:
    clean = predict_signal(FIBRE, torch.full((VOXELS,), S0, dtype=torch.float64), *table(num_b0, b=b))
    return add_noise(clean, S0 / snr, coils=1, generator=generator)


def root_mean_square(values: torch.Tensor) -> float:
    return values.square().mean().sqrt().item()


@pytest.mark.parametrize("snr", [5, 20, 100, 2000])
@pytest.mark.parametrize("num_b0", [1, 4])
def test_the_true_tensor_leaves_residuals_of_one(snr, num_b0, generator):
    signal = scan(generator, snr, num_b0=num_b0)
    found = consistency(signal, FIBRE, signal[:, :num_b0].mean(dim=-1), *table(num_b0), sigma=S0 / snr)
    assert root_mean_square(found) == pytest.approx(1, abs=0.03 if snr == 5 else 0.015)


def test_signals_that_have_sunk_into_the_noise_floor_are_no_contradiction(generator):
    # exp(−4000·1.2e-3) = 0.8 %: at an SNR of 20 the magnitude stays at 1.25σ, far above the signal.
    signal = scan(generator, 20, b=4000.0)
    found = consistency(signal, FIBRE, torch.full((VOXELS,), S0).double(), *table(1, b=4000.0), sigma=S0 / 20)
    assert root_mean_square(found) == pytest.approx(1, abs=0.02)


def test_a_tensor_that_follows_the_noise_exactly_leaves_nothing(generator):
    signal = scan(generator, 200)
    follows = minimum_norm(signal, *table(1))
    found = consistency(signal, follows, signal[:, 0], *table(1), sigma=S0 / 200)
    assert root_mean_square(found) < 0.05


def test_a_wrong_tensor_stands_out_by_its_error_over_the_noise():
    sigma = 1.0
    signal = predict_signal(FIBRE[:1], torch.full((1,), S0, dtype=torch.float64), *table(1))
    wrong = FIBRE[:1] + torch.tensor([1e-4, 0, 0, 0, 0, 0], dtype=torch.float64)
    found = consistency(signal, wrong, signal[:, 0], *table(1), sigma=sigma).item()
    # Only the first volume is off; its variance has S0's share, E², beside its own.
    expected_attenuation = torch.exp(torch.tensor(-1.3)).item()
    off = signal[0, 1].item() - S0 * expected_attenuation
    assert found == pytest.approx(off / (1 + expected_attenuation**2) ** 0.5 / 3**0.5, rel=1e-3)
    assert found > 10


def test_what_the_directions_do_not_see_changes_no_residual(generator):
    signal = scan(generator, 20)
    turned = FIBRE * torch.tensor([1, 1, 1, -1, 0, 2], dtype=torch.float64)
    one, two = (consistency(signal, d, signal[:, 0], *table(1), sigma=S0 / 20) for d in (FIBRE, turned))
    torch.testing.assert_close(one, two)


def test_mean_and_sd_of_a_magnitude_are_those_of_rices_distribution():
    snr = torch.tensor([1e-6, 0.5, 1, 3, 10, 19.9, 20.1, 30], dtype=torch.float64)
    found = _rician(snr)
    expected = scipy.stats.rice(snr.numpy())
    torch.testing.assert_close(found.mean, torch.from_numpy(expected.mean()), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.sd, torch.from_numpy(expected.std()), rtol=1e-5, atol=0)
    step = 1e-4
    slope = (_rician(snr + step).mean - _rician(snr - step).mean) / (2 * step)
    torch.testing.assert_close(found.slope, slope, rtol=1e-4, atol=1e-6)


def test_single_precision_is_enough_at_every_snr(generator):
    signal = scan(generator, 3000)
    double = consistency(signal, FIBRE, signal[:, 0], *table(1), sigma=S0 / 3000)
    bvals, directions = (part.float() for part in table(1))
    single = consistency(signal.float(), FIBRE.float(), signal[:, 0].float(), bvals, directions, sigma=S0 / 3000)
    torch.testing.assert_close(single.double(), double, rtol=0.01, atol=0.01)


def test_volumes_of_any_shape_are_taken(generator):
    signal = scan(generator, 20)[:24]
    listed = consistency(signal, FIBRE[:24], signal[:, 0], *table(1), sigma=50.0)
    image = consistency(
        signal.reshape(2, 3, 4, 4), FIBRE[:24].reshape(2, 3, 4, 6), signal[:, 0].reshape(2, 3, 4), *table(1), sigma=50.0
    )
    torch.testing.assert_close(image.flatten(), listed)


def test_without_a_b0_or_a_weighted_volume_there_is_no_residual():
    for bvals, missing in ((torch.full((3,), 1000.0), "no b=0"), (torch.zeros(3), "no weighted")):
        with pytest.raises(DataError, match=missing):
            consistency(torch.ones(2, 3), torch.ones(2, 6), torch.ones(2), bvals, torch.eye(3), sigma=1.0)


@pytest.mark.real
@pytest.mark.parametrize("name", ["philips_nottingham", "siemens_prisma_supine", "uih_PA"])
def test_the_fit_from_all_directions_of_a_real_scan_explains_three_of_them_about_to_their_noise(real_data: Path, name):
    path = real_data / "real" / name / "dwi.nii.gz"
    series, gradients = read_volume(path), read_gradients(path)
    mask = torch.from_numpy(find_brain(mean_b0(series, gradients)))
    signal, bvals, directions = (torch.from_numpy(a) for a in (series.data, gradients.bvals, gradients.directions))
    weighted = (bvals > 50).nonzero()[:, 0]
    chosen = [gradients.b0_indices[0], *weighted[list(nearest_to_axes(directions[weighted]).indices)].tolist()]
    noise = noise_sigma(signal[..., chosen], bvals[chosen], mask=mask)
    inside = signal[mask].double()
    packed, _ = fit_ols(inside, bvals, directions, min_signal=1.0)
    some = inside[:, chosen]
    table = (bvals[chosen], directions[chosen])
    found = consistency(some, packed, some[:, 0], *table, sigma=noise.sigma).median().item()
    wrong = consistency(some, packed.roll(1, dims=0) * 1.5, some[:, 0], *table, sigma=noise.sigma).median().item()
    assert 0.5 < found < 1.5
    assert wrong > 2 * found
