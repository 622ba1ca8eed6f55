import pytest
import torch

from tensorldm.networks.unet import UNet

LATENT_CHANNELS, CONDITION_CHANNELS = 3, 5
SIZE = (6, 4, 8)


@pytest.fixture
def unet(generator):
    network = UNet(
        (8, 12),
        latent_channels=LATENT_CHANNELS,
        condition_channels=CONDITION_CHANNELS,
        embedding_channels=4,
        time_channels=8,
        head_channels=4,
        attention_levels=(0, 1),
    )
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return network


@pytest.fixture
def latents(generator):
    return torch.randn(2, 6, LATENT_CHANNELS, *SIZE, generator=generator)


@pytest.fixture
def features(generator):
    return torch.randn(2, 6, CONDITION_CHANNELS, *SIZE, generator=generator)


@pytest.fixture
def coordinates():
    return tuple((torch.arange(side) * 8.0 - 4.0 * side).expand(2, -1) for side in SIZE)


STEPS = torch.tensor([10, 700])


def affected(before, after):
    return {d for d in range(6) if (before[:, d] - after[:, d]).abs().max() > 0}


def test_condition_then_denoise_is_the_whole_network(unet, latents, features, coordinates):
    with torch.no_grad():
        whole = unet(latents, STEPS, features=features, coordinates=coordinates)
        apart = unet.denoise(latents, STEPS, condition=unet.condition(features, coordinates))
    assert torch.equal(whole, apart)
    assert whole.shape == latents.shape


def test_the_condition_does_not_depend_on_time_and_the_prediction_does(unet, latents, features, coordinates):
    with torch.no_grad():
        condition = unet.condition(features, coordinates)
        first, second = (unet.denoise(latents, torch.full((2,), t), condition=condition) for t in (5, 900))
    assert (first - second).abs().max() > 1e-3


def test_one_subjects_condition_serves_many_samples(unet, latents, features, coordinates):
    one = tuple(axis[:1] for axis in coordinates)
    with torch.no_grad():
        condition = unet.condition(features[:1], one)
        both = unet.denoise(latents, STEPS, condition=condition)
        for sample in range(2):
            single = unet.denoise(latents[sample, None], STEPS[sample, None], condition=condition)
            torch.testing.assert_close(both[sample, None], single, atol=1e-5, rtol=0)


@pytest.mark.parametrize("component", range(6))
def test_off_no_component_sees_anothers_latents_or_condition(unet, latents, features, coordinates, component):
    with torch.no_grad():
        before = unet(latents, STEPS, features=features, coordinates=coordinates)
        for change_latents in (True, False):
            tensors = {"latents": latents.clone(), "features": features.clone()}
            tensors["latents" if change_latents else "features"][:, component] += 1
            after = unet(tensors["latents"], STEPS, features=tensors["features"], coordinates=coordinates)
            assert affected(before, after) == {component}


@pytest.mark.parametrize("mode", ["gated", "literal"])
def test_on_every_component_sees_every_other(unet, latents, features, coordinates, mode):
    unet.set_joint(mode)
    changed = latents.clone()
    changed[:, 4] += 1
    with torch.no_grad():
        before, after = (unet(z, STEPS, features=features, coordinates=coordinates) for z in (latents, changed))
    assert affected(before, after) == set(range(6))


def test_switching_to_joint_denoising_is_an_exact_no_op(unet, latents, features, coordinates):
    with torch.no_grad():
        for name, parameter in unet.named_parameters():
            if name.endswith(".gate"):
                parameter.zero_()
        before = unet(latents, STEPS, features=features, coordinates=coordinates)
        unet.set_joint("gated")
        assert torch.equal(unet(latents, STEPS, features=features, coordinates=coordinates), before)


def test_components_differ_by_their_embedding_alone(unet, latents, features, coordinates):
    """Same latents, same condition: only e_d tells the shared network which component it denoises."""
    same_latents, same_features = (x[:, :1].expand(-1, 6, -1, -1, -1, -1).contiguous() for x in (latents, features))
    with torch.no_grad():
        apart = unet(same_latents, STEPS, features=same_features, coordinates=coordinates)
        unet.component_embedding.vectors.copy_(unet.component_embedding.vectors[:1].expand(6, -1, -1).clone())
        alike = unet(same_latents, STEPS, features=same_features, coordinates=coordinates)
    assert (apart[:, 0] - apart[:, 3]).abs().max() > 1e-3
    torch.testing.assert_close(alike[:, 0], alike[:, 3], atol=1e-6, rtol=0)


def test_a_fresh_network_predicts_zero(latents, features, coordinates):
    fresh = UNet(
        (8, 12),
        latent_channels=LATENT_CHANNELS,
        condition_channels=CONDITION_CHANNELS,
        attention_levels=(),
        head_channels=4,
    )
    with torch.no_grad():
        assert fresh(latents, STEPS, features=features, coordinates=coordinates).abs().max() == 0


def test_gradients_reach_every_parameter_of_the_unet(unet, latents, features, coordinates):
    unet.set_joint("gated")
    unet(latents, STEPS, features=features, coordinates=coordinates).square().mean().backward()
    for name, parameter in unet.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_channels_last_weights_give_the_same_prediction(unet, latents, features, coordinates):
    unet.set_joint("gated")
    with torch.no_grad():
        plain = unet(latents, STEPS, features=features, coordinates=coordinates)
        unet.to(memory_format=torch.channels_last_3d)
        torch.testing.assert_close(
            unet(latents, STEPS, features=features, coordinates=coordinates), plain, atol=1e-5, rtol=1e-5
        )
