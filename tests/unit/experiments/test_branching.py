"""A trained stage under other settings, and what ships as a start."""

import pytest
import torch
from pydantic import ValidationError

from tensorldm.build import build_model
from tensorldm.bundle import Card, load_bundle, read_info, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.experiments import preparing_runs
from tensorldm.experiments.branching import first_part, start_for
from tensorldm.experiments.preparing_runs import check_runs, make_ready
from tensorldm.experiments.recipes import TrainingConfig
from tensorldm.training.paper_stage import starting_model


def test_what_the_decoders_read_is_a_switch_until_a_stage_has_trained_them_to(tmp_path):
    plain, moe = (read_config(RunConfig, "smoke", more).model for more in ([], ["model.decoder_condition=moe"]))
    known = {config.decoder_condition: build_model(config, 7).state_dict() for config in (plain, moe)}
    for config, other in ((plain, moe), (moe, plain)):
        folder = tmp_path / config.decoder_condition
        for stages in ((1, 2, 3), (1, 2, 3, 4)):
            card = Card(stages=stages)
            weights = known[config.decoder_condition]
            write_bundle(folder / str(len(stages)), weights, config=config, joint=("gated", "off"), card=card)
        branch = start_for(folder / "3", other, folder=folder / "start")
        loaded, info = load_bundle(branch)
        assert info.model == other
        assert info.decoder_reads == loaded.decoder_reads == "anatomy", "as the stages so far have trained it"
        assert set(loaded.state_dict()) == set(known[other.decoder_condition])
        both = set(loaded.state_dict()) & set(known[config.decoder_condition])
        assert all(torch.equal(loaded.state_dict()[name], known[config.decoder_condition][name]) for name in both)
        first = read_info(branch).weights_sha256
        assert read_info(start_for(folder / "3", other, folder=folder / "start")).weights_sha256 == first
        with pytest.raises(ConfigError, match="trained with decoder_condition"):
            start_for(folder / "4", other, folder=folder / "late")


EXPECTING = (
    "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}",
    "stages.0={steps: 1, box: [16, 16, 16]}",
)
FROM_WHAT_SHIPS = {
    "first": {"start": "shipped", "stages": [1]},
    "again": {"start": "shipped", "stages": [1], "seed": 1},
}


def _shipped(folder, *overrides: str):
    config = read_config(RunConfig, "smoke", overrides).model
    weights = build_model(config, 5).state_dict()
    write_bundle(folder, weights, config=config, joint=("gated", "gated"), card=Card(stages=(0, 1, 2, 3, 4, 5)))
    return weights


def _training(**changes) -> TrainingConfig:
    known = {"size": "smoke", "changes": EXPECTING, "runs": FROM_WHAT_SHIPS}
    return TrainingConfig.model_validate({**known, **changes})


def test_a_run_from_what_ships_has_its_expectation_and_first_weights_of_its_own_for_the_rest(tmp_path, monkeypatch):
    """Of the shipped model's later stages nothing may leak into an ablation of them."""
    weights = _shipped(tmp_path / "shipped", *EXPECTING)
    monkeypatch.setattr(preparing_runs, "shipped_model", lambda: tmp_path / "shipped")
    check_runs(_training(), tmp_path, seed=0)
    for name, seed in (("first", 0), ("again", 1)):
        ready = make_ready(_training(), name, tmp_path, seed=0)
        assert (ready.settings.seed, ready.stages) == (seed, (1,))
        model, joint, card = starting_model(ready.settings, ready.start)
        assert (joint, card.stages) == (("off", "off"), (0,))
        fresh = build_model(ready.settings.model, seed).state_dict()
        for key, value in model.state_dict().items():
            torch.testing.assert_close(value, weights[key] if key.startswith("expectation.") else fresh[key])
    made = (tmp_path / "runs" / "first" / "start" / "bundle.json").stat().st_mtime_ns
    make_ready(_training(), "first", tmp_path, seed=0)
    assert (tmp_path / "runs" / "first" / "start" / "bundle.json").stat().st_mtime_ns == made
    weights = _shipped(tmp_path / "shipped", *EXPECTING, "model.unet.channels=[8, 16]")
    with pytest.raises(ConfigError, match="begun with other start"):
        make_ready(_training(), "first", tmp_path, seed=0)


def test_what_ships_is_a_start_for_later_stages_in_any_form(tmp_path, monkeypatch):
    _shipped(tmp_path / "shipped", *EXPECTING)
    monkeypatch.setattr(preparing_runs, "shipped_model", lambda: tmp_path / "shipped")
    other = _training(changes=(*EXPECTING, "model.unet_cca=none", "model.unet.channels=[8, 16]"))
    check_runs(other, tmp_path, seed=0)
    assert not (tmp_path / "runs").exists(), "a check makes nothing"
    assert make_ready(other, "first", tmp_path, seed=0).start is not None


def test_what_ships_is_a_start_for_an_expectation_of_its_form_alone(tmp_path, monkeypatch):
    _shipped(tmp_path / "shipped")
    monkeypatch.setattr(preparing_runs, "shipped_model", lambda: tmp_path / "shipped")
    with pytest.raises(ConfigError, match="another size or form"):
        check_runs(_training(), tmp_path, seed=0)
    with pytest.raises(ConfigError, match="no Stage 0 to start from"):
        first_part(tmp_path / "shipped", folder=tmp_path / "start")
    with pytest.raises(ValidationError, match="shipped is the start of tensorldm alone"):
        _training(runs={"unet": {"method": "unet", "start": "shipped"}})
