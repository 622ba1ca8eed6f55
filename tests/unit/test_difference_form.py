"""Models with an expectation: the autoencoder and the diffusion see the difference from it, and nothing else."""

from dataclasses import replace

import pytest
import torch

from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
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
