import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tensorldm.batch import mask_centre
from tensorldm.diffusion import add_noise, linear_schedule, prediction_target, sample, trailing_pairs
from tensorldm.model import TensorLDM
from tensorldm.networks.autoencoder import Autoencoder
from tensorldm.networks.compiling import compile_static
from tensorldm.networks.conditioner import FixedConditioner
from tensorldm.networks.decoder import Decoder
from tensorldm.networks.direction_conditioner import DirectionConditioner
from tensorldm.networks.encoder import Encoder
from tensorldm.networks.expectation import Expectation
from tensorldm.networks.experts import DirectionExperts, FixedExperts
from tensorldm.networks.quantizer import VectorQuantizer
from tensorldm.networks.unet import UNet

PLAIN = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "plain_sampling.py"))
"""Sampling as one would first write it, the yardstick of the benchmark."""
CHANNELS, LATENT_CHANNELS, EMBEDDING = (4, 6, 8), 4, 4
SCALES = (1e-3, 1e-3, 1e-3, 5e-4, 5e-4, 5e-4)


def build(form: str, prediction="noise") -> TensorLDM:
    if form == "paper":
        conditioner = FixedConditioner(CHANNELS)
        experts = FixedExperts(conditioner.pooled_channels, 8, vector_channels=3 * EMBEDDING)
    else:
        analytic = 12 if form == "expecting" else 6
        conditioner = DirectionConditioner(CHANNELS, gradient_channels=8, analytic_channels=analytic)
        experts = DirectionExperts(conditioner.pooled_channels, 8, vector_channels=3 * EMBEDDING, gradient_channels=8)
    autoencoder = Autoencoder(
        (Encoder(CHANNELS, latent_channels=LATENT_CHANNELS), Encoder(CHANNELS, latent_channels=LATENT_CHANNELS)),
        (VectorQuantizer(32, LATENT_CHANNELS), VectorQuantizer(32, LATENT_CHANNELS)),
        conditioner=conditioner,
        decoder=Decoder(
            CHANNELS,
            latent_channels=LATENT_CHANNELS,
            condition_channels=CHANNELS,
            head_channels=4,
            attention_levels=(2,),
            fusion_level=1,
        ),
    )
    unet = UNet(
        (16, 24),
        latent_channels=LATENT_CHANNELS,
        condition_channels=8,
        embedding_channels=EMBEDDING,
        time_channels=16,
        head_channels=8,
        attention_levels=(0, 1),
    )
    return TensorLDM(
        autoencoder,
        unet,
        experts=experts,
        schedule=linear_schedule(),
        latent_channels=LATENT_CHANNELS,
        component_scales=SCALES,
        prediction=prediction,
        expectation=Expectation([8, 12], num_blocks=[1, 1], vector_channels=8) if form == "expecting" else None,
    )


@pytest.fixture(params=["paper", "directional", "expecting"])
def model(request, generator):
    torch.manual_seed(0)
    model = build(request.param).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.set_joint("gated", "gated")
    return model


def scan(size, generator, number=3):
    directions = torch.cat([torch.zeros(1, 3), torch.eye(3).repeat(number // 3, 1)])
    dwi = 0.2 + 0.7 * torch.rand(1, number + 1, *size, generator=generator)
    dwi[:, 0] = 1.0
    mask = torch.zeros(1, *size, dtype=torch.bool)
    mask[:, 2:-2, 2:-2, 2:-2] = True
    return {
        "dwi": dwi,
        "bvals": torch.tensor([[0.0, *[1000.0] * number]]),
        "directions": directions[None],
        "mask": mask,
        "voxel_size": torch.full((1, 3), 2.0),
    }


def features_of(model, inputs):
    known = {name: inputs[name] for name in ("directions", "mask", "voxel_size")}
    return model.scan_features(inputs["dwi"], inputs["bvals"], **known)


@pytest.mark.parametrize("size", [(16, 16, 16), (13, 17, 9), (8, 21, 30)])
@pytest.mark.parametrize("sampler", ["ddim", "dpm++2m"])
def test_a_volume_of_any_size_comes_back_in_its_own_size_and_empty_outside_the_mask(model, size, sampler, generator):
    inputs = scan(size, generator)
    noise = torch.randn(model.latent_shape(1, size), generator=generator)
    found = model.reconstruct(**inputs, noise=noise, num_steps=2, sampler=sampler, spacing="log-snr")
    assert found.shape == (1, 6, *size)
    assert torch.isfinite(found).all()
    outside = ~inputs["mask"].unsqueeze(1).expand_as(found)
    assert found[outside].abs().max() == 0
    assert found[~outside].abs().max() > 0


def test_the_same_noise_gives_the_same_bytes_and_another_noise_another_sample(model, generator):
    inputs = scan((16, 16, 16), generator)
    noise = torch.randn(model.latent_shape(2, (16, 16, 16)), generator=generator)
    first, again = (model.reconstruct(**inputs, noise=noise[:1], num_steps=3) for _ in range(2))
    other = model.reconstruct(**inputs, noise=noise[1:], num_steps=3)
    assert torch.equal(first, again)
    assert (first - other).abs().max() > 1e-3


def test_samples_drawn_together_are_those_drawn_alone(model, generator):
    inputs = scan((16, 16, 16), generator)
    noise = torch.randn(model.latent_shape(3, (16, 16, 16)), generator=generator)
    together = model.reconstruct(**inputs, noise=noise, num_steps=3)
    for index in range(3):
        alone = model.reconstruct(**inputs, noise=noise[index, None], num_steps=3)
        # A latent that lies almost between two codes may go to either; all others must agree.
        agree = ((together[index] - alone[0]).abs() < 1e-4).float().mean()
        assert float(agree) > 0.99


@pytest.mark.parametrize("mode", ["off", "gated", "literal"])
@pytest.mark.parametrize("size", [(16, 16, 16), (21, 9, 30)])
def test_a_step_is_what_the_plain_way_gives_component_by_component(model, mode, size, generator):
    model.set_joint("gated", mode)
    inputs = scan(size, generator)
    noise = torch.randn(model.latent_shape(1, size), generator=generator)
    reading = model.read(**inputs)
    with torch.inference_mode():
        for step in (0, 500, 999):
            found = model.denoise(noise, torch.tensor([step]), condition=reading.condition)
            known = {name: inputs[name] for name in ("mask", "voxel_size")}
            plain = PLAIN["plain_denoise"](model, noise, step, features=reading.features, **known)
            assert plain.abs().max() > 0.1
            torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)


def test_a_sample_is_what_the_plain_way_draws(model, generator):
    inputs = scan((16, 16, 16), generator)
    noise = torch.randn(model.latent_shape(1, (16, 16, 16)), generator=generator)
    with torch.inference_mode():
        features = features_of(model, inputs)
        known = {name: inputs[name] for name in ("mask", "voxel_size")}
        plain = PLAIN["plain_draw"](model, features, noise, **known, num_steps=4)
    found = model.ready().reconstruct(**inputs, noise=noise, num_steps=4)
    # A latent that lies almost between two codes may go to either; all others must agree.
    assert float(((found - plain).abs() < 1e-4).float().mean()) > 0.99


def test_a_model_made_ready_gives_the_same_values_from_another_order_in_memory(model, generator):
    inputs = scan((13, 17, 9), generator)
    noise = torch.randn(model.latent_shape(1, (13, 17, 9)), generator=generator)
    before = model.read(**inputs)
    weights = {name: values.clone() for name, values in model.state_dict().items()}
    after = model.train().ready().read(**inputs)
    assert not model.training
    assert all(torch.equal(values, weights[name]) for name, values in model.state_dict().items())
    assert model.unet.head.weight.is_contiguous(memory_format=torch.channels_last_3d)
    with torch.inference_mode():
        first, second = (model.denoise(noise, torch.tensor([7]), condition=part.condition) for part in (before, after))
        torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)
        decoded = [model.decode(noise, part.features, size=(13, 17, 9)) for part in (before, after)]
    torch.testing.assert_close(*decoded, atol=1e-5, rtol=1e-5)


def test_one_step_for_all_samples_is_the_same_step_for_each(model, generator):
    inputs = scan((16, 16, 16), generator)
    noise = torch.randn(model.latent_shape(3, (16, 16, 16)), generator=generator)
    condition = model.read(**inputs).condition
    with torch.inference_mode():
        each = model.denoise(noise, torch.full((3,), 400), condition=condition)
        torch.testing.assert_close(model.denoise(noise, torch.tensor([400]), condition=condition), each)


def test_a_recorded_step_takes_the_place_of_the_models_own(model, generator):
    inputs = scan((16, 16, 16), generator)
    noise = torch.randn(model.latent_shape(1, (16, 16, 16)), generator=generator)
    reading, steps = model.read(**inputs), []

    def recorded(latents, step):
        steps.append(step)
        return model.denoise(latents, torch.tensor([step]), condition=reading.condition)

    found = model.draw(reading, noise, num_steps=3, denoise=recorded)
    assert steps == [999, 666, 332]
    assert torch.equal(found, model.draw(reading, noise, num_steps=3))


def test_signal_outside_the_mask_does_not_matter(model, generator):
    inputs = scan((16, 16, 16), generator)
    noise = torch.randn(model.latent_shape(1, (16, 16, 16)), generator=generator)
    before = model.reconstruct(**inputs, noise=noise, num_steps=2)
    inputs["dwi"] = torch.where(inputs["mask"][:, None], inputs["dwi"], 7.0)
    assert torch.equal(model.reconstruct(**inputs, noise=noise, num_steps=2), before)


def test_decoding_what_was_encoded_is_the_autoencoders_own_reconstruction(model, generator):
    inputs = scan((16, 16, 16), generator)
    components = torch.randn(1, 6, 16, 16, 16, generator=generator)
    with torch.no_grad():
        features = features_of(model, inputs)
        raw = model.autoencoder.encode(components, features)
        model.set_latent_scale(raw, torch.ones(1, 4, 4, 4, dtype=torch.bool))
        decoded = model.decode(model.encode(components, features), features, size=(16, 16, 16))
        expected = model.autoencoder(components, features, condition=features.fused).components
    agree = ((decoded - expected).abs() < 1e-4).float().mean()
    assert float(agree) > 0.99  # a latent almost between two codes may fall either way after rescaling


def test_latents_inside_the_mask_have_unit_variance_in_each_group(model, generator):
    components = torch.randn(2, 6, 16, 16, 16, generator=generator)
    inside = torch.rand(2, 4, 4, 4, generator=generator) > 0.4
    with torch.no_grad():
        features = features_of(model, scan((16, 16, 16), generator))
        model.set_latent_scale(model.autoencoder.encode(components, features), inside)
        latents = model.encode(components, features)
    for group in (slice(0, 3), slice(3, 6)):
        members = latents[:, group].movedim(2, -1).movedim(1, -2)[inside]
        torch.testing.assert_close(members.std(dim=(0, 1)), torch.ones(LATENT_CHANNELS), atol=1e-4, rtol=0)
        torch.testing.assert_close(members.mean(dim=(0, 1)), torch.zeros(LATENT_CHANNELS), atol=1e-4, rtol=0)
    torch.testing.assert_close(model.normalise(model.denormalise(latents)), latents)


def test_the_latent_mask_holds_every_latent_that_a_voxel_of_the_mask_falls_into(model):
    mask = torch.zeros(1, 16, 16, 9, dtype=torch.bool)
    mask[0, 5, 0, 8] = True
    found = model.latent_mask(mask)
    assert found.shape == (1, *model.latent_size((16, 16, 9)))
    assert found.nonzero().tolist() == [[0, 1, 0, 2]]


def test_gates_are_shares_of_the_volumes(model, generator):
    inputs = scan((16, 8, 8), generator)
    with torch.no_grad():
        gates = model.gates(features_of(model, inputs))
    assert gates.shape == (1, 6, 4)
    torch.testing.assert_close(gates.sum(dim=-1), torch.ones(1, 6))


def test_the_directional_form_takes_more_directions_and_any_order(generator):
    torch.manual_seed(0)
    model = build("directional").eval()
    inputs = scan((16, 8, 8), generator, number=6)
    inputs["directions"][:, 4:] = F.normalize(torch.tensor([[1.0, 1, 0], [1, 0, 1], [0, 1, -1]]), dim=-1)
    noise = torch.randn(model.latent_shape(1, (16, 8, 8)), generator=generator)
    order = torch.tensor([3, 5, 0, 1, 6, 2, 4])
    shuffled = {key: inputs[key][:, order] for key in ("dwi", "bvals", "directions")}
    with torch.no_grad():
        first = model.reconstruct(**inputs, noise=noise, num_steps=2)
        second = model.reconstruct(**{**inputs, **shuffled}, noise=noise, num_steps=2)
    torch.testing.assert_close(first, second, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prediction", ["noise", "velocity", "clean"])
def test_learning_one_scan_by_heart_lowers_the_loss_and_leads_the_sampler_there(prediction, generator):
    torch.manual_seed(0)
    model = build("paper", prediction=prediction)
    inputs = scan((16, 8, 8), generator)
    clean = torch.randn(1, 6, LATENT_CHANNELS, 4, 2, 2, generator=generator)
    with torch.no_grad():
        features = features_of(model, inputs)
    centre = mask_centre(inputs["mask"])
    optimizer = torch.optim.Adam([*model.unet.parameters(), *model.experts.parameters()], lr=1e-2)
    repeated = clean.expand(2, -1, -1, -1, -1, -1)
    losses = []
    for _ in range(50):
        steps = torch.randint(0, 1000, (2,), generator=generator)
        noise = torch.randn(repeated.shape, generator=generator)
        alpha_bar = model.schedule.gather(steps)
        condition = model.condition(features, model.places(features, centre, voxel_size=inputs["voxel_size"]))
        predicted = model.denoise(add_noise(repeated, noise, alpha_bar=alpha_bar), steps, condition=condition)
        target = prediction_target(repeated, noise, alpha_bar=alpha_bar, prediction=prediction)
        loss = (predicted - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    if prediction == "noise":
        return  # fifty steps are too few to sample by: an error in the noise counts 1/sqrt(alpha_bar) times at first
    with torch.no_grad():
        condition = model.condition(features, model.places(features, centre, voxel_size=inputs["voxel_size"]))
        sampled = sample(
            lambda z, t: model.denoise(z, torch.full((1,), t), condition=condition),
            torch.randn(clean.shape, generator=generator),
            pairs=trailing_pairs(10),
            schedule=model.schedule,
            prediction=prediction,
        )
    correlation = torch.corrcoef(torch.stack([sampled.flatten(), clean.flatten()]))[0, 1]
    assert float(correlation) > 0.5


def test_the_model_imports_without_monai_nibabel_pydantic_or_lightning():
    code = (
        "import sys\n"
        "for name in ('monai', 'nibabel', 'pydantic', 'lightning_fabric', 'dipy'): sys.modules[name] = None\n"
        "import tensorldm.model\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def compile_the_step():
    """Fails on any graph break, and on a compiled step that differs."""
    generator = torch.Generator().manual_seed(0)
    model = build("directional").eval()
    model.set_joint("gated", "gated")
    inputs = scan((16, 16, 16), generator)
    latents, step = torch.randn(1, 6, LATENT_CHANNELS, 4, 4, 4, generator=generator), torch.tensor([500])
    with torch.no_grad():
        features = features_of(model, inputs)
        condition = model.condition(
            features, model.places(features, mask_centre(inputs["mask"]), voxel_size=inputs["voxel_size"])
        )
        compiled = compile_static(model.unet.denoise, "eager")
        found = compiled(latents, step, condition=condition)
        torch.testing.assert_close(found, model.unet.denoise(latents, step, condition=condition))
        decode = compile_static(model.autoencoder.decode, "eager")
        known = {"features": features, "condition": model.decoder_condition(features)}
        torch.testing.assert_close(decode(latents, **known), model.autoencoder.decode(latents, **known))


def test_the_step_that_a_sampler_repeats_and_the_decoder_compile_to_one_graph_each():
    """In a process of its own: the shape checks of the test session cannot be traced."""
    code = f"import runpy; runpy.run_path({__file__!r})['compile_the_step']()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("mirrored", [False, True])
def test_once_ready_a_mirrored_expectation_looks_both_ways(mirrored, generator):
    model = build("expecting").eval()
    torch.nn.init.normal_(model.expectation.head.weight, std=0.2, generator=generator)
    model.expectation.mirrored = mirrored
    inputs = scan((16, 16, 16), generator)
    with torch.inference_mode():
        before = model.expect(**inputs)
        model.ready()
        assert model.expectation.both_ways is mirrored
        assert torch.allclose(model.expect(**inputs), before, atol=1e-5) is not mirrored
