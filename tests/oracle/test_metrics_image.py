"""PSNR and SSIM against torchmetrics and SciPy, which know nothing of masks: compared where masks do not matter."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from tensorldm.metrics.image import psnr, ssim


@pytest.fixture
def pair(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two correlated textured volumes of unequal sides."""
    texture = torch.randn(40, 34, 31, generator=generator, dtype=torch.float64)
    other = torch.randn(40, 34, 31, generator=generator, dtype=torch.float64)
    smooth = torch.from_numpy(gaussian_filter(texture.numpy(), 1.2))
    return smooth, 0.8 * smooth + 0.1 * other


def test_psnr_equals_torchmetrics_on_a_full_image(pair):
    mask = torch.ones(pair[0].shape, dtype=torch.bool)
    theirs = peak_signal_noise_ratio(pair[1], pair[0], data_range=2.5)
    assert psnr(*pair, mask, data_range=2.5).item() == pytest.approx(theirs.item(), abs=1e-5)  # theirs is single


def test_ssim_equals_torchmetrics_inside_a_zero_border(pair):
    mask = torch.zeros(pair[0].shape, dtype=torch.bool)
    mask[12:28, 11:24, 10:22] = True
    a, b = (image.where(mask, 0) for image in pair)
    _, theirs = structural_similarity_index_measure(
        b[None, None], a[None, None], sigma=1.5, data_range=2.5, return_full_image=True
    )
    assert ssim(*pair, mask, data_range=2.5).item() == pytest.approx(theirs[0, 0][mask].mean().item(), abs=1e-9)


def test_ssim_equals_scipy_filters_up_to_the_edge_of_the_array(pair):
    a, b = (image.numpy() for image in pair)

    def local_mean(image: np.ndarray) -> np.ndarray:
        return gaussian_filter(image, 1.5, truncate=3.5, mode="constant")

    mean_a, mean_b = local_mean(a), local_mean(b)
    variances = local_mean(a * a) - mean_a**2 + local_mean(b * b) - mean_b**2
    covariance = local_mean(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * 2.5) ** 2, (0.03 * 2.5) ** 2
    expected = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    expected /= (mean_a**2 + mean_b**2 + c1) * (variances + c2)
    everywhere = torch.ones(pair[0].shape, dtype=torch.bool)
    assert ssim(*pair, everywhere, data_range=2.5).item() == pytest.approx(expected.mean(), abs=1e-9)
