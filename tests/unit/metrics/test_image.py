"""PSNR, NMSE and SSIM: what they mean, what they ignore, and their closed forms."""

import math

import pytest
import torch

from tensorldm.metrics.image import nmse, psnr, ssim


@pytest.fixture
def volume(generator: torch.Generator) -> torch.Tensor:
    return torch.rand(17, 14, 12, generator=generator, dtype=torch.float64)


@pytest.fixture
def mask() -> torch.Tensor:
    mask = torch.zeros(17, 14, 12, dtype=torch.bool)
    mask[3:13, 2:11, 4:10] = True
    mask[3, 2, 4] = False
    return mask


def test_psnr_of_a_constant_error_is_its_closed_form(volume, mask):
    assert psnr(volume, volume + 0.03, mask, data_range=3.0).item() == pytest.approx(40.0)


def test_psnr_of_identical_images_is_infinite(volume, mask):
    assert math.isinf(psnr(volume, volume.clone(), mask, data_range=1.0).item())


def test_psnr_of_small_diffusivities_survives_single_precision(volume, mask):
    reference = (volume * 1e-3).float()
    assert psnr(reference, reference + 3e-7, mask, data_range=3e-3).item() == pytest.approx(80.0, abs=0.01)


def test_nmse_of_a_tenth_too_much_is_one_hundredth(volume, mask):
    assert nmse(volume, 1.1 * volume, mask).item() == pytest.approx(0.01)


def test_nmse_of_a_missing_image_is_one(volume, mask):
    assert nmse(volume, torch.zeros_like(volume), mask).item() == pytest.approx(1.0)


def test_nmse_has_no_unit(volume, mask):
    small, large = nmse(volume, volume.flip(0), mask), nmse(1e-3 * volume, 1e-3 * volume.flip(0), mask)
    assert small.item() == pytest.approx(large.item())


@pytest.mark.parametrize(
    "measure",
    [
        lambda a, b, m: psnr(a, b, m, data_range=1.0),
        nmse,
        lambda a, b, m: ssim(a, b, m, data_range=1.0),
    ],
    ids=["psnr", "nmse", "ssim"],
)
class TestEveryMeasure:
    def test_what_lies_outside_the_mask_does_not_count(self, measure, volume, mask, generator):
        noisy = volume + 0.1 * torch.randn(volume.shape, generator=generator, dtype=torch.float64)
        elsewhere = noisy.where(mask, 1e3)
        assert measure(volume, noisy, mask).item() == measure(volume, elsewhere, mask).item()

    def test_more_noise_is_worse(self, measure, volume, mask, generator):
        noise = torch.randn(volume.shape, generator=generator, dtype=torch.float64)
        figures = [measure(volume, volume + level * noise, mask).item() for level in (0.01, 0.05, 0.2, 1.0)]
        assert figures == sorted(figures) or figures == sorted(figures, reverse=True)
        assert len(set(figures)) == 4

    def test_an_empty_mask_gives_no_figure(self, measure, volume):
        assert math.isnan(measure(volume, volume, torch.zeros_like(volume, dtype=torch.bool)).item())


def test_ssim_of_identical_images_is_one(volume, mask):
    assert ssim(volume, volume.clone(), mask, data_range=1.0).item() == pytest.approx(1.0, abs=1e-12)


def test_ssim_of_an_inverted_texture_is_negative(mask):
    x, y, z = torch.meshgrid(*(torch.arange(side) for side in mask.shape), indexing="ij")
    checkerboard = 1.0 - 2.0 * ((x + y + z) % 2)  # its local mean is zero, so only the structure is compared
    assert ssim(checkerboard, -checkerboard, mask, data_range=1.0).item() < -0.5


def test_ssim_depends_on_the_range_only_through_its_ratio(volume, mask):
    other = volume.flip(1)
    one = ssim(volume, other, mask, data_range=1.0).item()
    assert ssim(3e-3 * volume, 3e-3 * other, mask, data_range=3e-3).item() == pytest.approx(one, rel=1e-9)


def test_ssim_does_not_change_when_background_is_added_or_cropped(volume, mask):
    other = volume.flip(0)
    one = ssim(volume, other, mask, data_range=1.0).item()
    margins = (3, 9, 0, 2, 7, 1)
    padded = [torch.nn.functional.pad(image, margins) for image in (volume, other, mask)]
    assert ssim(*padded, data_range=1.0).item() == pytest.approx(one, abs=1e-12)
    cropped = [image[3:13, 2:11, 4:10] for image in (volume, other, mask)]
    assert ssim(*cropped, data_range=1.0).item() == pytest.approx(one, abs=1e-12)


def test_ssim_in_single_precision_agrees_with_double(volume, mask):
    other = volume + 0.1 * volume.flip(2)
    double = ssim(volume, other, mask, data_range=1.0).item()
    assert ssim(volume.float(), other.float(), mask, data_range=1.0).item() == pytest.approx(double, abs=1e-5)
