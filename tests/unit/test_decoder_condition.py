"""What the decoders read of a scan: Φ_X, or the experts' Φ^d where the settings say so and a stage has trained it."""

import hashlib
import json
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError

from tensorldm.build import build_model
from tensorldm.bundle import INDEX, Card, load_bundle, read_info, write_bundle
from tensorldm.config.model import ModelConfig
from tensorldm.config.reading import dump_config, read_config
from tensorldm.config.run import RunConfig
from tensorldm.model import TensorLDM

MOE = "model.decoder_condition=moe"
FORMS = {
    "paper": ("model.autoencoder.conditioner=paper",),
    "directional": (),
    "expecting": (
        "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}",
        "stages.0={steps: 1, box: [16, 16, 16]}",
    ),
}
OUTLINES = {
    "paper": "dc02dddb4c93e4871ba71fb940a6ca8e3a3cd5535ff311e96678ad1b55fbccb5",
    "directional": "08c48d96f64ef7b070b70889b363e96d2daa8e54db761ce59eba561ca4732fc2",
}
"""Of names and shapes of the weights in their order: bundles that exist are read by them."""
SPREADS = {
    "paper": (0.59455, 0.69734, 0.61401, 0.47413, 0.88877, 0.38764),
    "directional": (1.17429, 0.62219, 0.61706, 0.65124, 0.57507, 0.48379),
}
"""Of the sampled components, from before decoders had a choice."""
SIZE = (13, 16, 9)


def config_of(form: str, *overrides: str) -> ModelConfig:
    return read_config(RunConfig, "smoke", (*FORMS[form], *overrides)).model


def shaken(model: TensorLDM, generator: torch.Generator) -> TensorLDM:
    """All layers at work, as after training."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(params=FORMS)
def form(request) -> str:
    return request.param


@pytest.fixture
def model(form, generator) -> TensorLDM:
    """One whose decoders read Φ^d."""
    model = shaken(build_model(config_of(form, MOE), 1).eval(), generator)
    model.set_decoder_condition("moe")
    return model


def scan_of(generator) -> dict[str, torch.Tensor]:
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


def affected(before: torch.Tensor, after: torch.Tensor) -> set[int]:
    return {d for d in range(6) if not torch.equal(before[:, d], after[:, d])}


def test_the_setting_is_the_anatomy_unless_said_and_comes_back_from_a_file(form, tmp_path):
    plain, moe = (read_config(RunConfig, "smoke", (*FORMS[form], *more)) for more in ((), (MOE,)))
    assert (plain.model.decoder_condition, moe.model.decoder_condition) == ("anatomy", "moe")
    (tmp_path / "run.yaml").write_text(dump_config(moe))
    assert read_config(RunConfig, str(tmp_path / "run.yaml")) == moe
    with pytest.raises(ValidationError, match="decoder_condition"):
        ModelConfig.model_validate({**moe.model.model_dump(), "decoder_condition": "both"})
    with pytest.raises(ValidationError, match="frozen"):
        moe.model.decoder_condition = "anatomy"


@pytest.mark.parametrize("form", OUTLINES)
def test_a_model_that_keeps_the_anatomy_has_the_weights_and_the_samples_of_always(form, generator):
    model = build_model(config_of(form, "model.diffusion.prediction=noise"), 1).eval()
    outline = json.dumps([[name, list(value.shape)] for name, value in model.state_dict().items()])
    assert hashlib.sha256(outline.encode()).hexdigest() == OUTLINES[form]
    shaken(model, generator)
    scan = scan_of(generator)
    noise = torch.randn(model.latent_shape(1, SIZE), generator=generator)
    spread = model.reconstruct(**scan, noise=noise, num_steps=2)[0].flatten(1).std(dim=1)
    assert spread.tolist() == pytest.approx(SPREADS[form], rel=0.02)  # a latent between two codes may fall either way


def test_the_other_form_adds_weights_and_changes_none(form):
    plain, moe = (build_model(config_of(form, *more), 1).state_dict() for more in ((), (MOE,)))
    added = set(moe) - set(plain)
    assert added
    assert all(name.startswith("expert_levels.") for name in added)
    assert all(torch.equal(moe[name], value) for name, value in plain.items())


@torch.no_grad()
def test_before_the_switch_a_model_decodes_with_the_anatomy(form, generator):
    plain, moe = (shaken(build_model(config_of(form, *more), 1).eval(), generator) for more in ((), (MOE,)))
    moe.load_state_dict(plain.state_dict(), strict=False)
    scan = scan_of(generator)
    latents = torch.randn(plain.latent_shape(1, SIZE), generator=generator)
    features = plain.scan_features(**scan)
    assert moe.decoder_condition(features) is features.fused
    assert torch.equal(moe.decode(latents, features, size=SIZE), plain.decode(latents, features, size=SIZE))


@torch.no_grad()
@pytest.mark.parametrize("component", [0, 4])
def test_a_components_gate_changes_what_is_decoded_of_it_and_of_no_other(model, component, generator):
    features = model.scan_features(**scan_of(generator))
    latents = torch.randn(model.latent_shape(1, SIZE), generator=generator)
    gates, before = model.gates(features), model.decode(latents, features, size=SIZE)
    model.unet.component_embedding.vectors[component] += 3.0
    assert affected(gates, model.gates(features)) == {component}
    assert affected(before, model.decode(latents, features, size=SIZE)) == {component}
    model.set_decoder_condition("anatomy")
    anatomy = model.decode(latents, features, size=SIZE)
    model.unet.component_embedding.vectors[component] -= 3.0
    assert torch.equal(model.decode(latents, features, size=SIZE), anatomy), "Φ_X knows no gate"


@torch.no_grad()
def test_joined_decoders_pass_a_components_condition_on(model, generator):
    features = model.scan_features(**scan_of(generator))
    latents = torch.randn(model.latent_shape(1, SIZE), generator=generator)
    model.set_joint("gated", "off")
    before = model.decode(latents, features, size=SIZE)
    model.unet.component_embedding.vectors[2] += 3.0
    assert affected(before, model.decode(latents, features, size=SIZE)) == set(range(6))


@torch.no_grad()
def test_decoding_reads_either_the_anatomy_or_the_experts_and_never_both(model, generator):
    features = model.scan_features(**scan_of(generator))
    latents = torch.randn(model.latent_shape(1, SIZE), generator=generator)
    for reads, spoilt in (
        ("moe", replace(features, fused=tuple(torch.full_like(level, torch.nan) for level in features.fused))),
        ("anatomy", replace(features, pooled=torch.full_like(features.pooled, torch.nan))),
    ):
        model.set_decoder_condition(reads)
        sound = model.decode(latents, features, size=SIZE)
        assert torch.equal(model.decode(latents, spoilt, size=SIZE), sound)
        model.set_decoder_condition("anatomy" if reads == "moe" else "moe")
        assert model.decode(latents, spoilt, size=SIZE).isnan().any()


def test_a_sample_is_decoded_with_the_experts_mixture(model, generator, monkeypatch):
    """The whole way from scan to sample, with Φ_X out of order."""
    scan = scan_of(generator)
    noise = torch.randn(model.latent_shape(2, SIZE), generator=generator)
    sound, conditioner = model.reconstruct(**scan, noise=noise, num_steps=2), model.autoencoder.conditioner
    read = conditioner.forward

    def without_anatomy(*args, **known):
        features = read(*args, **known)
        return replace(features, fused=tuple(torch.full_like(level, torch.nan) for level in features.fused))

    monkeypatch.setattr(conditioner, "forward", without_anatomy)
    assert torch.equal(model.reconstruct(**scan, noise=noise, num_steps=2), sound)
    model.set_decoder_condition("anatomy")
    assert model.reconstruct(**scan, noise=noise, num_steps=2).isnan().any()


def test_a_bundle_samples_what_the_model_did(form, model, generator, tmp_path):
    scan = scan_of(generator)
    noise = torch.randn(model.latent_shape(1, SIZE), generator=generator)
    given = {"config": config_of(form, MOE), "joint": ("off", "off")}
    for stages, reads in (((1, 2, 3), "anatomy"), ((1, 2, 3, 4), "moe"), ((1, 2, 3, 4, 5), "moe")):
        folder = tmp_path / str(len(stages))
        write_bundle(folder, model.state_dict(), **given, card=Card(stages=stages))
        loaded, info = load_bundle(folder)
        assert loaded.decoder_reads == info.decoder_reads == reads
        model.set_decoder_condition(reads)
        again = loaded.reconstruct(**scan, noise=noise, num_steps=2)
        assert torch.equal(again, model.reconstruct(**scan, noise=noise, num_steps=2))


def test_half_precision_ships_the_way_to_the_decoders_once_it_is_trained(form, model, tmp_path):
    given = {"config": config_of(form, MOE), "joint": ("off", "off"), "precision": "float16"}
    for stages, there in (((1, 2, 3), False), ((1, 2, 3, 4), True)):
        folder = tmp_path / str(len(stages))
        write_bundle(folder, model.state_dict(), **given, card=Card(stages=stages))
        loaded, _ = load_bundle(folder)
        kept = (model if there else build_model(given["config"])).expert_levels.state_dict()
        for name, value in loaded.expert_levels.state_dict().items():
            assert torch.allclose(value, kept[name], rtol=1e-3, atol=1e-7), name


def test_an_index_from_before_the_setting_is_read_as_the_anatomy(form, tmp_path):
    model = build_model(config_of(form), 1)
    write_bundle(tmp_path, model.state_dict(), config=config_of(form), joint=("gated", "off"), card=Card())
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["model"].pop("decoder_condition") == "anatomy"
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert read_info(tmp_path).model == config_of(form)
    assert load_bundle(tmp_path)[0].decoder_reads == "anatomy"


def test_decoders_built_for_the_anatomy_are_not_switched(form):
    with pytest.raises(AssertionError, match="for Φ_X alone"):
        build_model(config_of(form)).set_decoder_condition("moe")
