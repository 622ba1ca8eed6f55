"""A bundle made ready to ship is the same model in half the bytes, or it is refused and nothing is touched."""

import runpy
from pathlib import Path

import pytest
import torch

from tensorldm.build import build_model
from tensorldm.bundle import WEIGHTS, Card, IntervalFactors, load_bundle, read_info, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import DataError

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "ship.py"))
ship = TOOL["ship"]


@pytest.fixture
def bundles(tmp_path):
    """Two ends of a training: one model, other weights."""
    config = read_config(RunConfig, "smoke").model
    card, factors = Card(stages=(1, 2, 3, 4, 5), text="old"), IntervalFactors(fa=2.0, source="here")
    for seed in (1, 2):
        weights = build_model(config, seed).state_dict()
        folder = tmp_path / f"end{seed}"
        write_bundle(folder, weights, config=config, joint=("gated", "gated"), card=card, intervals=factors)
    return [tmp_path / "end1", tmp_path / "end2"]


def test_what_ships_is_the_same_model_in_half_precision(bundles, tmp_path):
    info = ship(bundles[:1], tmp_path / "out", text="new")
    assert (info.precision, info.card.text, info.card.stages) == ("float16", "new", (1, 2, 3, 4, 5))
    assert (info.unet_joint, info.intervals) == ("gated", read_info(bundles[0]).intervals)
    before, after = (dict(load_bundle(folder)[0].named_parameters()) for folder in (bundles[0], tmp_path / "out"))
    for name, value in before.items():
        torch.testing.assert_close(after[name], value.half().float(), rtol=0, atol=0)
    assert (tmp_path / "out" / WEIGHTS).stat().st_size < 0.6 * (bundles[0] / WEIGHTS).stat().st_size


def test_several_bundles_are_averaged(bundles, tmp_path):
    ship(bundles, tmp_path / "out")
    one, two, mean = (dict(load_bundle(folder)[0].named_parameters()) for folder in (*bundles, tmp_path / "out"))
    name = max(one, key=lambda each: (one[each] - two[each]).abs().max())
    torch.testing.assert_close(mean[name], ((one[name] + two[name]) / 2).half().float(), rtol=1e-3, atol=1e-6)


def test_bundles_of_two_kinds_are_not_averaged(bundles, tmp_path):
    config = read_config(RunConfig, "smoke", ["model.unet_cca=none"]).model
    write_bundle(
        tmp_path / "other",
        build_model(config).state_dict(),
        config=config,
        joint=("off", "off"),
        card=Card(stages=(1,)),
    )
    with pytest.raises(DataError, match="other: another model"):
        ship([bundles[0], tmp_path / "other"], tmp_path / "out")


def test_what_is_too_large_is_refused_and_the_old_one_stays(bundles, tmp_path, monkeypatch):
    ship(bundles[:1], tmp_path / "out")
    before = (tmp_path / "out" / WEIGHTS).read_bytes()
    monkeypatch.setitem(ship.__globals__, "LARGEST_BYTES", 1000)
    with pytest.raises(DataError, match="may ship"):
        ship(bundles[1:], tmp_path / "out")
    assert (tmp_path / "out" / WEIGHTS).read_bytes() == before


def test_the_parts_of_later_stages_can_be_left_out(bundles, tmp_path):
    info = ship(bundles[:1], tmp_path / "out", until=3)
    assert info.card.stages == (1, 2, 3)
    assert (info.decoder_joint, info.unet_joint) == ("gated", "off")
    assert info.intervals == IntervalFactors()
    before, after = (load_bundle(folder)[0] for folder in (bundles[0], tmp_path / "out"))
    for name, value in before.autoencoder.named_parameters():
        torch.testing.assert_close(after.autoencoder.get_parameter(name), value.half().float(), rtol=0, atol=0)
    assert (tmp_path / "out" / WEIGHTS).stat().st_size < 0.5 * (bundles[0] / WEIGHTS).stat().st_size
    assert any(not torch.equal(a, b) for a, b in zip(before.unet.parameters(), after.unet.parameters(), strict=True))
    with pytest.raises(DataError, match="none up to 0"):
        ship(bundles[:1], tmp_path / "none", until=0)
