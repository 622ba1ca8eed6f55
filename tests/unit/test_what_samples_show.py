"""Shares of what a scan leaves open: known for a model whose decoder is known."""

import runpy
from pathlib import Path

import pytest
import torch

from tensorldm.batch import Batch, mask_centre
from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "what_samples_show.py"))
measure, Way, to_table = TOOL["measure"], TOOL["Way"], TOOL["to_table"]
SIDE = 16
EXPECTING = (
    "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}",
    "stages.0={steps: 1, box: [16, 16, 16]}",
)


@pytest.fixture
def model():
    return build_model(read_config(RunConfig, "smoke", EXPECTING).model, 1).eval()


@pytest.fixture
def batch(generator) -> Batch:
    mask = torch.zeros(1, SIDE, SIDE, SIDE, dtype=torch.bool)
    mask[:, 2:-2, 2:-2, 2:-2] = True
    dwi = 0.2 + 0.7 * torch.rand(1, 4, SIDE, SIDE, SIDE, generator=generator)
    dwi[:, 0] = 1.0
    components = 1e-3 * torch.randn(1, 6, SIDE, SIDE, SIDE, generator=generator) * mask[:, None]
    return Batch(
        dwi=dwi,
        bvals=torch.tensor([[0.0, 1000.0, 1000.0, 1000.0]]),
        directions=torch.cat([torch.zeros(1, 3), torch.eye(3)])[None],
        components=components,
        clean=components,
        mask=mask,
        voxel_size=torch.full((1, 3), 2.0),
        centre=mask_centre(mask),
        subjects=("one",),
    )


def test_a_decoder_that_knows_nothing_carries_nothing_and_shows_nothing(model, batch):
    found = measure(model, batch, Way(samples=2, steps=1, sampler="ddim"))
    assert found == pytest.approx(
        {
            f"{name} {group}": share
            for name, share in (("carried", 0), ("own", 0), ("white", 0), ("drawn", 0), ("mean", 1))
            for group in ("diagonal", "off-diagonal")
        },
        abs=1e-5,
    )


def test_a_decoder_that_finds_half_of_the_difference_carries_three_quarters_of_its_square(model, batch, monkeypatch):
    units = torch.tensor(model.component_scales).reshape(1, 6, 1, 1, 1)
    target = batch.components / units

    def half_way(latents, features, *, size):
        return (target + features.expected) / 2

    monkeypatch.setattr(model, "decode", half_way)
    found = measure(model, batch, None)
    assert set(found) == {f"{name} {group}" for name in ("carried", "own", "white") for group in TOOL["GROUPS"]}
    assert found["carried diagonal"] == pytest.approx(0.75)
    assert found["own off-diagonal"] == pytest.approx(0.25)


def test_samples_that_differ_are_seen_to_vary(model, batch, monkeypatch):
    units = torch.tensor(model.component_scales).reshape(1, 6, 1, 1, 1)
    target, signs = batch.components / units, iter([1, -1, 1, -1])

    def above_or_below(reading, noise, **_):
        difference = target - reading.features.expected
        return reading.features.expected + next(signs) * difference

    monkeypatch.setattr(model, "draw", above_or_below)
    found = measure(model, batch, Way(samples=4, steps=1, sampler="ddim"))
    assert found["drawn diagonal"] == pytest.approx(4 / 3, rel=1e-4)
    assert found["mean off-diagonal"] == pytest.approx(1.0, rel=1e-4)
    assert "| mean off-diagonal | 1.000 | 1.000, 1.000 |" in to_table([found, found])
