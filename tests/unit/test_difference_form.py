"""Models with an expectation: the autoencoder and the diffusion see the difference from it, and nothing else."""

from dataclasses import replace

import pytest
import torch

from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.model import TensorLDM

EXPECTING = (
    "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}",
    "stages.0={steps: 1, box: [16, 16, 16]}",
)
SIZE = (13, 16, 9)


@pytest.fixture
def model(generator) -> TensorLDM:
    """All layers at work but the decoder's last one, which is as it was built."""
    model = build_model(read_config(RunConfig, "smoke", EXPECTING).model, 1).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("autoencoder.decoder.head."):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture
def scan(generator) -> dict[str, torch.Tensor]:
    mask = torch.zeros(1, *SIZE, dtype=torch.bool)
    mask[:, 1:-1, 2:-2, 1:-1] = True
    dwi = 0.2 + 0.7 * torch.rand(1, 4, *SIZE, generator=generator)
    dwi[:, 0] = 1.0
    return {
        "dwi": dwi,
        "bvals": torch.tensor([[0.0, 1000.0, 1000.0, 1000.0]]),
        "directions": torch.cat([torch.zeros(1, 3), torch.eye(3)])[None],
        "mask": mask,
        "voxel_size": torch.full((1, 3), 2.0),
    }


def test_before_the_difference_is_learned_every_sample_is_the_expectation(model, scan, generator):
    noise = torch.randn(model.latent_shape(3, SIZE), generator=generator)
    samples = model.reconstruct(**scan, noise=noise, num_steps=2)
    with torch.no_grad():
        expected = model.expect(**scan)
    assert float(expected.std()) > 0.1
    torch.testing.assert_close(samples, expected.expand(3, -1, -1, -1, -1), atol=1e-6, rtol=1e-6)


@torch.no_grad()
def test_a_tensor_as_expected_leaves_nothing_to_encode(model, scan):
    features = model.scan_features(**scan)
    nothing = model.normalise(model.autoencoder.encode(torch.zeros_like(features.expected)))
    x, y, z = SIZE
    torch.testing.assert_close(model.encode(features.expected[..., :x, :y, :z], features), nothing)
    other = features.expected[..., :x, :y, :z] + 0.3 * scan["mask"]
    assert float((model.encode(other, features) - nothing).abs().max()) > 1e-2


@torch.no_grad()
def test_what_is_decoded_is_added_to_the_expectation(model, scan, generator):
    torch.nn.init.normal_(model.autoencoder.decoder.head.weight, std=0.1)
    features = model.scan_features(**scan)
    latents = torch.randn(model.latent_shape(1, SIZE), generator=generator)
    whole = model.decode(latents, features, size=SIZE)
    difference = model.decode(latents, replace(features, expected=None), size=SIZE)
    assert float(difference.std()) > 1e-2
    x, y, z = SIZE
    torch.testing.assert_close(whole, difference + features.expected[..., :x, :y, :z])


SPREADING = (*EXPECTING, "model.spread_channels=4")


@pytest.fixture
def spreading(generator) -> TensorLDM:
    model = build_model(read_config(RunConfig, "smoke", SPREADING).model, 1).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@torch.no_grad()
def test_the_spread_is_of_the_brain_alone(spreading, scan):
    spread, (x, y, z) = spreading.scan_features(**scan).spread, SIZE
    inside = scan["mask"][:, None].expand(-1, 6, -1, -1, -1)
    assert float(spread[..., :x, :y, :z][inside].std()) > 1e-3
    assert float(spread.min()) > 0
    assert torch.equal(spread[..., :x, :y, :z][~inside], torch.ones(int((~inside).sum())))


@torch.no_grad()
def test_latents_count_the_difference_in_units_of_the_spread(spreading, scan, generator):
    features, (x, y, z) = spreading.scan_features(**scan), SIZE
    relative = torch.randn(features.expected.shape, generator=generator)
    components = features.expected + features.spread * relative
    plain = spreading.autoencoder.encode(relative)
    torch.testing.assert_close(spreading.autoencoder.encode(components, features), plain, atol=1e-5, rtol=1e-4)
    latents = torch.randn(spreading.latent_shape(1, SIZE), generator=generator)
    whole = spreading.decode(latents, features, size=SIZE)
    relative = spreading.decode(latents, replace(features, expected=None), size=SIZE)
    by_hand = (features.expected[..., :x, :y, :z] + features.spread[..., :x, :y, :z] * relative).float()
    torch.testing.assert_close(whole, by_hand)
    assert float(relative.std()) > 1e-2


@torch.no_grad()
def test_latents_are_decoded_as_codes_or_as_they_are(scan, generator):
    forms = {
        form: build_model(read_config(RunConfig, "smoke", (f"model.decodes={form}",)).model, 1).eval()
        for form in ("codes", "latents")
    }
    for model in forms.values():
        model.latent_spread.fill_(0.5)
    features = forms["codes"].scan_features(**scan)
    latents = torch.randn(forms["codes"].latent_shape(1, SIZE), generator=generator)
    codes = forms["codes"].normalise(forms["codes"].autoencoder.quantize(0.5 * latents).latents)
    found = {form: model.decode(latents, features, size=SIZE) for form, model in forms.items()}
    assert float((found["codes"] - found["latents"]).abs().max()) > 1e-3
    torch.testing.assert_close(forms["latents"].decode(codes, features, size=SIZE), found["codes"])


def test_a_spread_needs_an_expectation():
    with pytest.raises(ConfigError, match="spread_channels is of differences from an expectation"):
        read_config(RunConfig, "smoke", ("model.spread_channels=4",))
