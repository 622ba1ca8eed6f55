"""The rivals that draw: with a perfect denoiser they give the truth back, and each sample is its own."""

import pytest
import torch
from einops import rearrange

from tensorldm.baselines.learned.catalogue import build_rival
from tensorldm.baselines.learned.maps import maps_of, tensor_of
from tensorldm.baselines.learned.rival import Sampling
from tensorldm.baselines.learned.runs import open_run
from tensorldm.baselines.learned.slices import slices_with_brain
from tensorldm.baselines.learned.told import tell_batch


def _noise(number: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(number))


def _rival(name: str, *overrides: str):
    _, settings = open_run(name, "smoke", list(overrides))
    return build_rival(settings.model, name=name).eval()


def _velocity(noisy, clean, alpha_bar):
    """sqrt(a) noise - sqrt(1 - a) clean, for the noise that is in ``noisy``."""
    noise = (noisy - alpha_bar**0.5 * clean) / (1 - alpha_bar) ** 0.5
    return alpha_bar**0.5 * noise - (1 - alpha_bar) ** 0.5 * clean


@pytest.mark.parametrize(("sampler", "signs"), [("ddim", False), ("dpm++2m", False), ("ddim", True)])
def test_diff_dti_with_a_perfect_denoiser_gives_the_tensor_of_the_true_maps(one_head, sampler, signs, monkeypatch):
    rival = _rival("diffdti", f"model.signs={signs}")
    maps = maps_of(one_head.components, one_head.mask, signs=signs)
    slices = rearrange(maps[..., slices_with_brain(one_head.mask)], "1 f x y z -> z f x y")

    def perfect(noisy, steps, *, scan, features=None):
        return _velocity(noisy, slices, float(rival.schedule.alpha_bar[int(steps[0])]))

    monkeypatch.setattr(rival, "denoise", perfect)
    told = tell_batch(one_head, rival.scaling.per_component)
    found = rival.estimate(told, Sampling(_noise, num_samples=2, num_steps=7, sampler=sampler))
    assert torch.allclose(found, tensor_of(maps).expand(2, -1, -1, -1, -1), atol=2e-6)


def test_ldm_with_a_perfect_denoiser_gives_what_its_autoencoder_makes_of_the_truth(one_head, monkeypatch):
    rival = _rival("ldm")
    rival.begin(1, [one_head], seed=0)
    rival.begin(2, [one_head], seed=0)
    target = rival.scaling.scale(one_head.components)
    latents = rival.tensors.encode(target)
    clean = (latents - rival.latent_mean) / rival.latent_spread

    def perfect(noisy, steps, *, condition):
        return _velocity(noisy, clean, float(rival.schedule.alpha_bar[int(steps[0])]))

    monkeypatch.setattr(rival, "denoise", perfect)
    told = tell_batch(one_head, rival.scaling.per_component)
    with torch.no_grad():
        found = rival.estimate(told, Sampling(_noise, num_samples=1, num_steps=9))
        wanted = rival.scaling.unscale(rival.tensors.decode(rival.tensors.quantize(latents)[0]))
    assert torch.allclose(found, wanted, atol=1e-6)


def test_the_latents_that_ldm_diffuses_have_mean_zero_and_variance_one_in_the_brain(one_head):
    rival = _rival("ldm")
    rival.begin(2, [one_head], seed=0)
    with torch.no_grad():
        latents = rival.tensors.encode(rival.scaling.scale(one_head.components))
    inside = rival.inside((latents - rival.latent_mean) / rival.latent_spread, one_head.mask)
    assert torch.allclose(inside.mean(dim=0), torch.zeros(12), atol=1e-4)
    assert torch.allclose(inside.std(dim=0), torch.ones(12), atol=1e-3)


@pytest.mark.parametrize("name", ["diffdti", "ldm"])
def test_a_sample_does_not_depend_on_how_many_are_drawn_and_differs_from_the_next(name, one_head):
    rival = _rival(name)
    rival.begin(1, [one_head], seed=0)
    told = tell_batch(one_head, rival.scaling.per_component)
    with torch.no_grad():
        both = rival.estimate(told, Sampling(_noise, num_samples=2, num_steps=2))
        one = rival.estimate(told, Sampling(_noise, num_samples=1, num_steps=2))
        next_one = rival.estimate(told, Sampling(_noise, num_samples=1, num_steps=2, first=1))
    assert torch.allclose(both[:1], one, atol=1e-7)
    assert torch.allclose(both[1:], next_one, atol=1e-7)
    assert not torch.allclose(both[0], both[1])


def test_the_enhancement_path_begins_as_nothing_and_fits_every_skip(one_head):
    rival = _rival("diffdti", "model.channels=[16,24,32]", "model.blocks=2")
    scan = rearrange(tell_batch(one_head, rival.scaling.per_component).channels, "1 f x y z -> z f x y")[:2]
    features = rival.enhancement(scan)
    assert all(feature.abs().max() == 0 for feature in features)
    with torch.no_grad():
        for head in rival.enhancement.heads:
            head.bias.fill_(1.0)
        noisy, steps = torch.randn(2, 6, 16, 16, generator=torch.Generator().manual_seed(0)), torch.tensor([3, 3])
        assert rival.denoise(noisy, steps, scan=scan).shape == noisy.shape
