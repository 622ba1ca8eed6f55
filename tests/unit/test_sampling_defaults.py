"""The table that picks the sampling defaults: its rule, its draws against the product's, and the whole run."""

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensorldm.build import build_model
from tensorldm.bundle import Card, write_bundle
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.reconstruct.engine import WorkingScan
from tensorldm.reconstruct.model_engine import load_model
from tensorldm.reconstruct.settings import Settings

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "sampling_defaults.py"
ABSENT = ("dipy", "monai", "matplotlib", "lightning_fabric", "pandas", "dask", "bids", "trx")


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("sampling_defaults", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXPECTING = (
    "model.expectation={channels: [8, 8], blocks: [1, 1], vector_channels: 8}",
    "stages.0={steps: 1, box: [16, 16, 16]}",
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return written(tmp_path_factory.mktemp("model") / "bundle", Card())


def written(folder: Path, card: Card, *overrides: str) -> Path:
    """A model that nobody has trained, with all its layers at work."""
    config = read_config(RunConfig, "smoke", overrides).model
    model, random = build_model(config, 3), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
    write_bundle(folder, model.state_dict(), config=config, joint=("gated", "gated"), card=card)
    return folder


def row(lem: float, seconds: float, samples: int = 4) -> dict:
    return {"LEM": lem, "seconds": seconds, "samples": samples, "steps": 5, "sampler": "ddim", "mean": "arithmetic"}


def test_the_quickest_row_within_one_per_cent_of_the_best_is_chosen(bench):
    best, near, quick, far = row(0.300, 9.0), row(0.3029, 3.0), row(0.3031, 1.0), row(0.4, 0.1)
    assert bench.choose([best, near, quick, far]) is near
    assert bench.choose([best, quick, far]) is best
    assert bench.choose([row(0.301, 2.0), row(0.300, 2.0)])["LEM"] == 0.300


def test_the_best_is_sought_among_rows_with_samples_enough(bench):
    single, four = row(0.30, 1.0, samples=1), row(0.35, 4.0)
    assert bench.choose([single, four]) is single
    assert bench.choose([single, four], least_samples=2) is four
    assert bench.choose([single], least_samples=2) is None


def test_samples_are_the_products_own_and_the_mean_of_one_latent_is_its_sample(bench, bundle, generator):
    mask = torch.ones(8, 8, 8, dtype=torch.bool)
    mask[0] = False
    bvals = torch.tensor([0.0, 1000.0, 1000.0, 1000.0], dtype=torch.float64)
    directions = torch.cat([torch.zeros(1, 3), torch.eye(3)]).double()
    dwi = 0.2 + torch.rand(4, 8, 8, 8, generator=generator)
    scan = WorkingScan(dwi, bvals, directions, mask, (2.0, 2.0, 2.0), 1.0, "key")
    engine = load_model(bundle, device=torch.device("cpu"), settings=Settings(samples=3, steps=2))
    wanted = engine.estimate(scan)
    samples, decode_mean = bench.draw(engine, scan)
    assert torch.equal(samples, wanted)
    torch.testing.assert_close(decode_mean(1), wanted[0], rtol=1e-4, atol=1e-9)
    assert (decode_mean(3) - wanted.mean(dim=0)).abs().max() > 1e-6
    assert torch.equal(engine.estimate(scan), wanted), "the model is as it was"
    kinds = [(count, kind) for count, kind, _ in bench.tensors_of(samples, decode_mean, [1, 3])]
    assert kinds == [(1, "single"), (3, "arithmetic"), (3, "log-euclidean"), (3, "eigenvalues"), (3, "latents")]


def test_the_expectation_alone_is_measured_beside_its_samples(bench, bundle, tmp_path, generator):
    mask = torch.ones(8, 8, 8, dtype=torch.bool)
    bvals = torch.tensor([0.0, 1000.0, 1000.0, 1000.0], dtype=torch.float64)
    directions = torch.cat([torch.zeros(1, 3), torch.eye(3)]).double()
    dwi = 0.2 + torch.rand(4, 8, 8, 8, generator=generator)
    scan = WorkingScan(dwi, bvals, directions, mask, (2.0, 2.0, 2.0), 1.0, "key")
    plain, expecting = (
        load_model(folder, device=torch.device("cpu"), settings=Settings(samples=2, steps=1))
        for folder in (bundle, written(tmp_path / "expecting", Card(stages=(0, 1, 4)), *EXPECTING))
    )
    assert bench.expect(plain, scan) is None
    early = load_model(
        written(tmp_path / "early", Card(stages=(0,)), *EXPECTING), device=torch.device("cpu"), settings=Settings()
    )
    assert torch.equal(bench.expect(expecting, scan), early.estimate(scan)[0])
    assert len(expecting.estimate(scan)) == 2, "the engine draws as before"


def test_the_text_says_whether_samples_are_worth_their_expectation(bench):
    rows = [
        row(0.20, 1.0, samples=1) | dict.fromkeys(bench.FIGURES, 0.2),
        dict.fromkeys(bench.FIGURES, 0.3) | row(0.3, 2),
    ]
    assert bench.compare(rows, None) == []
    (better,) = bench.compare(rows, dict.fromkeys(bench.FIGURES, 0.31))
    (worse,) = bench.compare(rows, dict.fromkeys(bench.FIGURES, 0.29))
    assert "LEM 0.3100" in better
    assert "is better: 5 steps" in better
    assert "is no better: 5 steps" in worse


def test_the_script_writes_its_table_and_choice_where_few_packages_are_installed(bundle, tmp_path):
    words = [str(SCRIPT), str(bundle), "--out", str(tmp_path / "out"), "--subjects", "1", "--steps", "1", "2"]
    words += ["--samplers", "dpm++2m", "--samples", "1", "2", "--repeats", "1", "--device", "cpu"]
    words += ["--set", "shape=[20,24,20]", "--set", "voxel_mm=[6,6,6]"]
    code = f"import runpy, sys\nfor name in {ABSENT}: sys.modules[name] = None\nsys.argv = {words!r}\n"
    code += f"runpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=240,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    with (tmp_path / "out" / "sampling.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * (1 + 4)
    assert all(float(each["seconds"]) > 0 and 0 < float(each["LEM"]) < 10 for each in rows)
    assert len({each["seconds"] for each in rows if (each["steps"], each["samples"]) == ("1", "2")}) == 1
    assert "Chosen: " in (tmp_path / "out" / "sampling.md").read_text()
