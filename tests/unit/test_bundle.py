import hashlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tensorldm.build import build_model
from tensorldm.bundle import INDEX, WEIGHTS, Card, IntervalFactors, load_bundle, read_info, write_bundle
from tensorldm.bundle_files import copy_with_intervals
from tensorldm.config.model import ModelConfig
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import DataError


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    return read_config(RunConfig, "smoke").model


def _weights(config: ModelConfig) -> dict[str, torch.Tensor]:
    model = build_model(config, seed=5)
    for quantizer in model.autoencoder.quantizers:
        quantizer.counts.fill_(1e6)  # beyond what half precision can hold
        quantizer.sums.copy_(quantizer.codebook * 1e6)
    model.latent_spread.fill_(0.123456789)
    return model.state_dict()


def _write(folder, config, **changes):
    given = {"config": config, "joint": ("gated", "off"), "card": Card(stages=(1, 2, 3))}
    return write_bundle(folder, _weights(config), **{**given, **changes})


def test_a_model_comes_back_bit_for_bit_with_its_parts_joined_as_they_were(tmp_path, config):
    _write(tmp_path, config)
    model, info = load_bundle(tmp_path)
    for name, value in _weights(config).items():
        assert torch.equal(model.state_dict()[name], value), name
    assert info.card.stages == (1, 2, 3)
    assert model.autoencoder.decoder.fusion.active
    assert {m.mode for m in model.autoencoder.modules() if hasattr(m, "joint_bias")} == {"gated"}
    assert {m.mode for m in model.unet.modules() if hasattr(m, "joint_bias")} == {"off"}
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_half_precision_halves_the_file_and_keeps_buffers_exact(tmp_path, config):
    _write(tmp_path / "full", config, card=Card(stages=(1, 2, 3, 4)))
    _write(tmp_path / "half", config, card=Card(stages=(1, 2, 3, 4)), precision="float16")
    full, half = ((tmp_path / kind / WEIGHTS).stat().st_size for kind in ("full", "half"))
    assert half < 0.6 * full
    model, _ = load_bundle(tmp_path / "half")
    original = _weights(config)
    assert torch.equal(model.latent_spread, original["latent_spread"])
    assert torch.equal(model.autoencoder.quantizers[0].codebook, original["autoencoder.quantizers.0.codebook"])
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter, original[name], rtol=1e-3, atol=1e-7), name
    quantizer = model.autoencoder.quantizers[0]
    assert torch.equal(quantizer.sums / quantizer.counts[:, None], quantizer.codebook)


def test_first_weights_depend_on_the_seed_alone_and_leave_the_global_generator_alone(config):
    state = torch.random.get_rng_state()
    first, same, other = (build_model(config, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    assert torch.equal(torch.random.get_rng_state(), state)


def _change_index(folder, **changes):
    path = folder / INDEX
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


BREAKS = {
    "no index": (lambda folder: (folder / INDEX).unlink(), "no model there"),
    "not JSON": (lambda folder: (folder / INDEX).write_text("{"), "not valid JSON"),
    "another kind of file": (lambda folder: _change_index(folder, format="store"), "not the index of a model bundle"),
    "another version": (lambda folder: _change_index(folder, version=99), r"version 99.*reads version 1"),
    "an unknown setting": (lambda folder: _change_index(folder, surprise=1), "damaged at 'surprise'"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "weights cannot be read"),
    "changed weights": (lambda folder: (folder / WEIGHTS).write_bytes(b"x" * 100), "the hash differs"),
}


@pytest.mark.parametrize(("spoil", "words"), BREAKS.values(), ids=BREAKS)
def test_a_spoilt_bundle_is_refused_with_a_sentence(spoil, words, tmp_path, config):
    _write(tmp_path, config)
    spoil(tmp_path)
    with pytest.raises(DataError, match=words):
        load_bundle(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: weights.pop("unet.head.bias"), "'unet.head.bias' is missing"),
        (lambda weights: weights.update(extra=torch.zeros(1)), "'extra' is unknown"),
        (lambda weights: weights.update({"unet.head.bias": torch.zeros(99)}), r"'unet.head.bias' has shape \(99,\)"),
    ],
)
def test_weights_of_another_model_are_refused_by_name(change, words, tmp_path, config):
    _write(tmp_path, config)
    weights = load_file(tmp_path / WEIGHTS)
    change(weights)
    save_file(weights, tmp_path / WEIGHTS)
    _change_index(tmp_path, weights_sha256=hashlib.sha256((tmp_path / WEIGHTS).read_bytes()).hexdigest())
    with pytest.raises(DataError, match=words):
        load_bundle(tmp_path)


def test_nothing_in_a_bundle_is_pickled(tmp_path, config):
    _write(tmp_path, config)
    assert sorted(path.name for path in tmp_path.iterdir()) == [INDEX, WEIGHTS]
    read_info(tmp_path)
    assert b"pickle" not in (tmp_path / WEIGHTS).read_bytes()


def test_what_ships_leaves_out_the_parts_that_no_stage_has_trained(tmp_path):
    expecting = ["model.expectation={channels: [8, 8], blocks: [1, 1]}", "stages.0={steps: 1, box: [16, 16, 16]}"]
    config = read_config(RunConfig, "smoke", expecting).model
    weights = build_model(config, seed=5).state_dict()
    write_bundle(tmp_path, weights, config=config, joint=("off", "off"), card=Card(stages=(0,)), precision="float16")
    parts = {name.partition(".")[0] for name in load_file(tmp_path / WEIGHTS)}
    assert parts == {"expectation", "latent_mean", "latent_spread"}
    model, _ = load_bundle(tmp_path)
    for name, value in model.expectation.state_dict().items():
        assert torch.allclose(value, weights[f"expectation.{name}"], rtol=1e-3, atol=1e-7), name


def test_a_copy_with_other_intervals_has_the_same_weights_and_nothing_else_changed(tmp_path, config):
    _write(tmp_path / "old", config)
    factors = IntervalFactors(fa=2.0, source="heads", md_by_tissue=(1.5, 2.0, 3.0))
    copy_with_intervals(tmp_path / "old", tmp_path / "new", intervals=factors)
    assert (tmp_path / "new" / WEIGHTS).read_bytes() == (tmp_path / "old" / WEIGHTS).read_bytes()
    model, info = load_bundle(tmp_path / "new")
    assert info.intervals == factors
    assert info.model_copy(update={"intervals": IntervalFactors()}) == read_info(tmp_path / "old")
    assert torch.equal(model.latent_spread, torch.full_like(model.latent_spread, 0.123456789))


def test_a_copy_of_weights_that_are_not_the_bundles_is_refused(tmp_path, config):
    _write(tmp_path / "old", config)
    with (tmp_path / "old" / WEIGHTS).open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(DataError, match="hash differs"):
        copy_with_intervals(tmp_path / "old", tmp_path / "new", intervals=IntervalFactors())
    assert not (tmp_path / "new").exists()


def test_an_index_from_before_factors_by_tissue_is_read(tmp_path, config):
    _write(tmp_path, config, intervals=IntervalFactors(fa=1.5, source="old"))
    index = json.loads((tmp_path / INDEX).read_text())
    index["intervals"] = {"fa": 1.5, "md": 1.0, "v1": 1.0, "source": "old"}
    (tmp_path / INDEX).write_text(json.dumps(index))
    assert read_info(tmp_path).intervals == IntervalFactors(fa=1.5, source="old")
