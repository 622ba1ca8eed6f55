"""The coupled field: TensorLDM's own autoencoder, and one denoiser that sees all components at once."""

import pytest
import torch

from tensorldm.baselines.learned.catalogue import build_rival
from tensorldm.baselines.learned.rival import Sampling
from tensorldm.baselines.learned.runs import open_run
from tensorldm.baselines.learned.training import make_parts
from tensorldm.errors import ConfigError


@pytest.fixture
def rival(one_head):
    _, settings = open_run("coupled", "smoke", [])
    rival = build_rival(settings.model, name="coupled").eval()
    rival.begin(3, [one_head], seed=0)
    return rival


def _noise(number: int, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(number))


def _scan(batch):
    return {name: value for name, value in batch.scan.items() if name != "centre"}


def test_with_a_perfect_denoiser_it_gives_what_the_autoencoder_makes_of_the_truth(rival, one_head, monkeypatch):
    model, size = rival.model, tuple(one_head.mask.shape[1:])
    with torch.no_grad():
        features = model.scan_features(**one_head.scan)
        clean = model.encode(rival.scaling.scale(one_head.components), features)
        wanted = rival.scaling.unscale(model.decode(clean, features, size=size)) * one_head.mask[:, None]

    def perfect(noisy, steps, *, pooled):
        alpha_bar = float(model.schedule.alpha_bar[int(steps[0])])
        noise = (noisy - alpha_bar**0.5 * clean) / (1 - alpha_bar) ** 0.5
        return alpha_bar**0.5 * noise - (1 - alpha_bar) ** 0.5 * clean

    monkeypatch.setattr(rival, "denoise", perfect)
    found = rival.reconstruct(**_scan(one_head), sampling=Sampling(_noise, num_samples=2, num_steps=7))
    assert torch.allclose(found, wanted.expand(2, -1, -1, -1, -1), atol=1e-6)


def test_every_component_of_the_prediction_may_depend_on_every_other(rival, one_head):
    with torch.no_grad():
        for parameter in rival.denoiser.parameters():
            parameter.add_(0.02)  # MONAI's last layer starts at zero
        features = rival.model.scan_features(**one_head.scan)
        noisy = _noise(0, rival.model.latent_shape(1, (16, 16, 16)))
        other = noisy.clone()
        other[:, 5] += 1
        one, changed = (rival.denoise(each, torch.tensor([400]), pooled=features.pooled) for each in (noisy, other))
    assert ((one - changed)[:, 0].abs() > 1e-6).any()


def test_a_latent_that_is_diffused_has_mean_zero_and_variance_one(rival, one_head):
    with torch.no_grad():
        latents = rival.model.encode(
            rival.scaling.scale(one_head.components), rival.model.scan_features(**one_head.scan)
        )
    inside = latents.movedim(1, -1).movedim(1, -1)[rival.model.latent_mask(one_head.mask)][:, :3]
    assert inside.mean().item() == pytest.approx(0, abs=1e-3)
    assert inside.std().item() == pytest.approx(1, abs=0.05)


def test_the_autoencoder_learns_first_and_stays_as_it_is_while_the_denoiser_learns(one_head):
    _, settings = open_run("coupled", "smoke", [])
    for stage, moves in ((1, "model.autoencoder."), (3, "denoiser.")):
        rival = build_rival(settings.model, name="coupled").train()
        rival.begin(stage, [one_head], seed=0)
        goals = rival.goals(stage, settings=settings.stages[str(stage)], seed=0)
        (part,) = make_parts(rival, goals, settings=settings.stages[str(stage)])
        before = {name: value.clone() for name, value in rival.state_dict().items()}
        loss, _ = part.objective(one_head, torch.tensor([0]))
        loss.backward()
        assert all(parameter.grad is not None for parameter in part.moving.values())
        part.optimizer.step()
        moved = {name for name, value in rival.state_dict().items() if not torch.equal(value, before[name])}
        assert moved
        assert all(name.startswith(moves) for name in moved)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("model.tensorldm.scaling.diagonal=0.002", "scaling and tensorldm.scaling are the same"),
        ("model.tensorldm.unet.channels=[8]", "as many levels as the denoiser"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        open_run("coupled", "smoke", [change])
