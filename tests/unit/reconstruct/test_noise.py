"""The noise level of scans whose noise is known."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.scanner import add_noise, brain_signal, noise_level
from tensorldm.errors import DataError
from tensorldm.reconstruct.noise import _grown, from_background, from_high_pass, from_repeats, noise_sigma

BVALS = torch.tensor([0.0, 1000.0, 1000.0, 1000.0])
DIRECTIONS = torch.cat((torch.zeros(1, 3), torch.eye(3)))


@pytest.fixture(scope="module")
def head() -> tuple[torch.Tensor, torch.Tensor, float]:
    """A noise-free four-volume scan of a virtual head's middle, its mask, and its white matter's b=0 signal."""
    source = ProceduralSource(split="test", shape=(96, 112, 24), voxel_size=(2.0, 2.0, 2.0), bundles=())
    anatomy = source.load(source.names[0])
    series = torch.zeros(*anatomy.mask.shape, 4)
    series[anatomy.mask] = brain_signal(anatomy, BVALS, DIRECTIONS)
    return series, anatomy.mask, noise_level(anatomy, 1.0)


def noisy(signal: torch.Tensor, sigma: float, generator: torch.Generator, *, coils: int = 1) -> torch.Tensor:
    return add_noise(signal, sigma, coils=coils, generator=generator)


@pytest.mark.parametrize("snr", [10, 20, 40])
def test_repeated_b0s_give_the_noise_despite_pulsating_fluid_and_drift(head, snr, generator):
    series, mask, white = head
    sigma = white / snr
    b0 = noisy(series[..., [0, 0, 0]], sigma, generator)
    b0[..., 1] *= 1.01
    fluid = series[..., 0] > 1.5 * white
    b0[..., 2][fluid] *= 0.8
    assert from_repeats(b0[mask]) == pytest.approx(sigma, rel=0.1)


@pytest.mark.parametrize("sigma", [0.6, 1.5, 2.5, 7.0])
def test_whole_numbers_of_little_noise_give_it_too(sigma, generator):
    """Some scanners save a noise of two or three units; rounding itself adds a variance of 1/12."""
    level = 200 + 100 * torch.rand(20_000, 1, generator=generator)
    saved = (level + sigma * torch.randn(20_000, 3, generator=generator)).round()
    assert from_repeats(saved) == pytest.approx((sigma**2 + 1 / 12) ** 0.5, rel=0.05)


@pytest.mark.parametrize("snr", [10, 20, 40])
def test_the_air_around_the_head_gives_the_noise(head, snr, generator):
    series, mask, white = head
    assert from_background(noisy(series, white / snr, generator), mask) == pytest.approx(white / snr, rel=0.03)


def test_tissue_outside_the_mask_does_not_pass_for_noise(head, generator):
    series, mask, white = head
    sigma = white / 20
    with_neck = series.clone()
    with_neck[:, :30] = 0.3 * white  # a quarter of the field of view
    assert from_background(noisy(with_neck, sigma, generator), mask) == pytest.approx(sigma, rel=0.1)


def test_a_background_that_is_not_plain_noise_is_not_used(head, generator):
    series, mask, white = head
    sigma = white / 20
    scan = noisy(series, sigma, generator)
    cut = torch.where(mask[..., None], scan, 0)
    clipped = torch.where(mask[..., None], scan, scan.clamp(min=1.5 * sigma))
    assert from_background(cut, mask) is None
    assert from_background(clipped, mask) is None
    assert from_background(noisy(series, sigma, generator, coils=4), mask) is None
    assert from_background(scan, torch.ones_like(mask)) is None


@pytest.mark.parametrize("snr", [10, 20, 30])
def test_the_finest_structure_inside_the_brain_gives_the_noise(head, snr, generator):
    series, mask, white = head
    sigma = white / snr
    scan = torch.where(mask[..., None], noisy(series, sigma, generator), 0)
    assert from_high_pass(scan, mask) == pytest.approx(sigma, rel=0.1)


def test_of_smooth_and_flat_images_the_finest_structure_is_exactly_the_noise(generator):
    x = torch.linspace(0, 1, 40)
    smooth = 100 + 50 * x[:, None, None] + 30 * x[:, None] * x
    edge = torch.where(x > 0.5, 100.0, 0.0)[:, None, None]
    noise = 2.0 * torch.randn(40, 40, 40, 2, generator=generator)
    scan = (smooth + edge)[..., None] + noise
    assert from_high_pass(scan, torch.ones(40, 40, 40, dtype=torch.bool)) == pytest.approx(2.0, rel=0.02)


def test_the_best_estimator_that_a_scan_allows_is_taken_and_named(head, generator):
    series, mask, white = head
    sigma = white / 20
    scan = noisy(series, sigma, generator)
    repeated = torch.cat((noisy(series[..., :1], sigma, generator), scan), dim=-1)
    stripped = torch.where(mask[..., None], scan, 0)
    more = torch.cat((torch.zeros(1), BVALS))
    for signal, bvals, method in (
        (repeated, more, "repeated b=0"),
        (scan, BVALS, "background"),
        (stripped, BVALS, "high-pass"),
    ):
        found = noise_sigma(signal, bvals, mask=mask)
        assert found.method == method
        assert found.sigma == pytest.approx(sigma, rel=0.1)


def test_the_noise_level_follows_the_units_of_the_scan(head, generator):
    series, mask, white = head
    scan = torch.where(mask[..., None], noisy(series, white / 20, generator), 0)
    one, thousand = (noise_sigma(scale * scan.double(), BVALS, mask=mask).sigma for scale in (1, 1000))
    assert thousand == pytest.approx(1000 * one)


def test_scans_without_measurable_noise_are_refused_with_a_reason(head):
    series, mask, _ = head
    sliver = torch.zeros_like(mask)
    sliver[40:60, 40:60, 10] = True
    with pytest.raises(DataError, match="too few"):
        noise_sigma(series, BVALS, mask=sliver)
    with pytest.raises(DataError, match="too few"):
        noise_sigma(series[:, :, :2], BVALS, mask=mask[:, :, :2])
    with pytest.raises(DataError, match="no noise at all"):
        noise_sigma(torch.ones(20, 20, 20, 4), BVALS, mask=torch.ones(20, 20, 20, dtype=torch.bool))


@pytest.mark.parametrize("voxels", [1, 4, 9])
def test_a_mask_grows_as_scipy_would_grow_it_also_at_the_border_and_where_it_is_thin(voxels, generator):
    mask = torch.rand(6, 13, 1, generator=generator) > 0.95
    block = np.ones((2 * voxels + 1,) * 3, dtype=bool)
    np.testing.assert_array_equal(_grown(mask, voxels).numpy(), ndimage.binary_dilation(mask.numpy(), block))
