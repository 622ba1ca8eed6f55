import pytest
import torch

from tensorldm.networks.autoencoder import Autoencoder
from tensorldm.networks.conditioner import FixedConditioner
from tensorldm.networks.decoder import Decoder, FusionMlp
from tensorldm.networks.encoder import Encoder
from tensorldm.networks.quantizer import VectorQuantizer

CHANNELS, LATENT_CHANNELS = (4, 6, 8), 3


def build(fusion_level=0, end_channels=None):
    return Autoencoder(
        (Encoder(CHANNELS, latent_channels=LATENT_CHANNELS), Encoder(CHANNELS, latent_channels=LATENT_CHANNELS)),
        (VectorQuantizer(16, LATENT_CHANNELS), VectorQuantizer(16, LATENT_CHANNELS)),
        conditioner=FixedConditioner(CHANNELS),
        decoder=Decoder(
            CHANNELS,
            latent_channels=LATENT_CHANNELS,
            condition_channels=CHANNELS,
            head_channels=4,
            attention_levels=(2,),
            fusion_level=fusion_level,
            end_channels=end_channels,
        ),
    )


def randomised(module, generator):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module


@pytest.fixture
def autoencoder(generator):
    return randomised(build(), generator)


@pytest.fixture
def components(generator):
    return torch.randn(1, 6, 16, 8, 8, generator=generator)


@pytest.fixture
def features(autoencoder, generator):
    dwi = torch.rand(1, 4, 16, 8, 8, generator=generator)
    return autoencoder.conditioner(dwi, torch.zeros(1, 4), directions=torch.zeros(1, 4, 3))


def affected(before, after):
    """Components that a change reached."""
    return {d for d in range(6) if (before[:, d] - after[:, d]).abs().max() > 0}


def test_the_fusion_mlp_of_the_paper_has_exactly_its_parameters():
    assert sum(parameter.numel() for parameter in FusionMlp(256).parameters()) == 2_361_600


def test_the_latents_are_four_times_smaller_along_each_axis(autoencoder, components):
    assert autoencoder.encode(components).shape == (1, 6, LATENT_CHANNELS, 4, 2, 2)


@pytest.mark.parametrize("component", range(6))
def test_a_component_is_encoded_by_itself(autoencoder, components, component):
    changed = components.clone()
    changed[:, component] += 1
    assert affected(autoencoder.encode(components), autoencoder.encode(changed)) == {component}


def test_components_of_a_group_share_an_encoder_and_groups_do_not(autoencoder, components):
    same = components[:, :1].expand(-1, 6, -1, -1, -1)
    latents = autoencoder.encode(same.contiguous())
    torch.testing.assert_close(latents[:, 0], latents[:, 2])
    torch.testing.assert_close(latents[:, 3], latents[:, 5])
    assert (latents[:, 0] - latents[:, 3]).abs().max() > 1e-3


def test_each_group_is_quantised_by_its_own_codebook(autoencoder, components):
    autoencoder.eval()
    quantized = autoencoder.quantize(autoencoder.encode(components)).latents
    for group, quantizer in zip((slice(0, 3), slice(3, 6)), autoencoder.quantizers, strict=True):
        vectors = quantized[:, group].movedim(2, -1).reshape(-1, LATENT_CHANNELS)
        offsets = (vectors[:, None] - quantizer.codebook[None]).abs().amax(dim=-1)
        assert offsets.min(dim=1).values.max() < 1e-5


@pytest.mark.parametrize("component", range(6))
def test_before_the_joint_stage_a_latent_reaches_its_own_component_only(autoencoder, features, component, generator):
    latents = torch.randn(1, 6, LATENT_CHANNELS, 4, 2, 2, generator=generator)
    changed = latents.clone()
    changed[:, component] += 1
    with torch.no_grad():
        before, after = (autoencoder.decode(each, features, condition=features.fused) for each in (latents, changed))
    assert affected(before, after) == {component}


@pytest.mark.parametrize("part", ["attention", "fusion"])
def test_in_the_joint_stage_attention_and_fusion_each_join_all_components(autoencoder, features, part, generator):
    autoencoder.decoder.set_joint("gated")
    autoencoder.decoder.fusion.active = part == "fusion"
    if part == "fusion":
        from tensorldm.networks.attention import set_attention_mode

        set_attention_mode(autoencoder.decoder, "off")
    latents = torch.randn(1, 6, LATENT_CHANNELS, 4, 2, 2, generator=generator)
    changed = latents.clone()
    changed[:, 1] += 1
    with torch.no_grad():
        before, after = (autoencoder.decode(each, features, condition=features.fused) for each in (latents, changed))
    assert affected(before, after) == set(range(6))


@pytest.mark.parametrize("fusion_level", [0, 1, 2])
@pytest.mark.parametrize("end_channels", [None, 12])
def test_switching_the_joint_parts_on_is_an_exact_no_op(fusion_level, end_channels, generator):
    """Attention's gate and the fusion's last layer start at zero, wherever the fusion sits."""
    autoencoder = randomised(build(fusion_level, end_channels), generator)
    decoder = autoencoder.decoder
    with torch.no_grad():
        decoder.fusion.widen.weight.zero_()
        decoder.fusion.widen.bias.zero_()
        for name, parameter in decoder.named_parameters():
            if name.endswith("gate"):
                parameter.zero_()
        condition = [torch.randn(1, 1, f, 16 // 2**i, 8 // 2**i, 8 // 2**i) for i, f in enumerate(CHANNELS)]
        latents = torch.randn(1, 6, LATENT_CHANNELS, 4, 2, 2, generator=generator)
        before = decoder(latents, condition)
        decoder.set_joint("gated")
        assert torch.equal(decoder(latents, condition), before)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_anatomy_of_every_resolution_reaches_every_component(autoencoder, features, level, generator):
    latents = torch.randn(1, 6, LATENT_CHANNELS, 4, 2, 2, generator=generator)
    changed = list(features.fused)
    changed[level] = changed[level] + 1
    with torch.no_grad():
        before = autoencoder.decoder(latents, features.fused)
        after = autoencoder.decoder(latents, changed)
    assert affected(before, after) == set(range(6))


def test_a_condition_for_each_component_is_read_with_the_weights_of_the_shared_one(autoencoder, features, generator):
    latents = torch.randn(1, 6, LATENT_CHANNELS, 4, 2, 2, generator=generator)
    own = [level.expand(-1, 6, -1, -1, -1, -1).contiguous() for level in features.fused]
    with torch.no_grad():
        torch.testing.assert_close(
            autoencoder.decoder(latents, own), autoencoder.decoder(latents, features.fused), atol=1e-5, rtol=1e-5
        )


def test_gradients_reach_every_parameter_of_the_autoencoder(autoencoder, components, generator):
    autoencoder.decoder.set_joint("gated")
    dwi = torch.rand(1, 4, 16, 8, 8, generator=generator)
    features = autoencoder.conditioner(dwi, torch.zeros(1, 4), directions=torch.zeros(1, 4, 3))
    result = autoencoder(components, features, condition=features.fused)
    ((result.components - components).abs().mean() + result.commitment).backward()
    for name, parameter in autoencoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_latents_outside_the_mask_teach_the_codebook_nothing(autoencoder, components, features):
    """The same components inside, nonsense outside: the same codebook."""
    inside = torch.zeros(1, 4, 2, 2, dtype=torch.bool)
    inside[:, :2] = True
    states = []
    for outside in (0.0, 100.0):
        latents = autoencoder.encode(components).detach()
        latents[..., 2:, :, :] = outside
        for quantizer in autoencoder.quantizers:
            quantizer.train()
            quantizer.load_state_dict({**quantizer.state_dict(), "counts": torch.ones(16), "sums": quantizer.codebook})
        start = {k: v.clone() for k, v in autoencoder.quantizers.state_dict().items()}
        autoencoder.quantize(latents, inside)
        states.append({k: v.clone() for k, v in autoencoder.quantizers.state_dict().items()})
        autoencoder.quantizers.load_state_dict(start)
    for name, value in states[0].items():
        torch.testing.assert_close(value, states[1][name], msg=lambda text, name=name: f"{name}: {text}")
    assert not torch.equal(states[0]["0.codebook"], start["0.codebook"])


@pytest.mark.parametrize("pad", [16, 32])
def test_far_from_the_border_decoding_does_not_depend_on_padding(pad, generator):
    """All layers are local, so padding behind by whole windows leaves the far corner as it was."""
    autoencoder = randomised(build(), generator)
    autoencoder.decoder.set_joint("gated")
    latents = torch.randn(1, 6, LATENT_CHANNELS, 16, 4, 4, generator=generator)
    dwi = torch.rand(1, 4, 64, 16, 16, generator=generator)

    def decode(dwi, latents):
        with torch.no_grad():
            features = autoencoder.conditioner(dwi, torch.zeros(1, 4), directions=torch.zeros(1, 4, 3))
            return autoencoder.decode(latents, features, condition=features.fused)

    alone = decode(dwi, latents)
    padded = decode(
        torch.nn.functional.pad(dwi, (0, 0, 0, 0, 0, pad)),
        torch.nn.functional.pad(latents, (0, 0, 0, 0, 0, pad // 4)),
    )
    torch.testing.assert_close(padded[:, :, :16], alone[:, :, :16], atol=1e-5, rtol=0)
    assert (padded[:, :, 60:64] - alone[:, :, 60:64]).abs().max() > 1e-4, "the border itself may differ"
