"""``tensorldm calibrate`` as a user runs it, where neither DIPY nor anything for training and pictures is installed."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tensorldm.build import build_model
from tensorldm.bundle import INDEX, WEIGHTS, Card, read_info, write_bundle
from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError, DataError
from tensorldm.experiments import calibrating, observing
from tensorldm.reconstruct.choice import choose
from tensorldm.reconstruct.settings import Settings

ABSENT = ("dipy", "monai", "matplotlib", "lightning_fabric", "pandas", "dask", "bids", "trx")
SMALL = ["--set", "shape=[20,24,20]", "--set", "voxel_mm=[6,6,6]", "--subjects", "1", "--device", "cpu"]
FEW = ["--samples", "3", "--steps", "1"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    """A model that nobody has trained, with all layers at work and tensors about as large as a brain's."""
    folder = tmp_path_factory.mktemp("model") / "bundle"
    config = read_config(RunConfig, "smoke").model
    model, random = build_model(config, 3), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
        model.autoencoder.decoder.head.weight.mul_(0.3)
        model.autoencoder.decoder.head.bias[:3] += 1.0
    write_bundle(folder, model.state_dict(), config=config, joint=("gated", "gated"), card=Card())
    return folder


@pytest.fixture(scope="module")
def calibrated(bundle, tmp_path_factory) -> Path:
    """What the program writes in a process of its own."""
    out = tmp_path_factory.mktemp("calibrated") / "new"
    words = ["tensorldm", "calibrate", str(bundle), "--data", "cohort:procedural", "--out", str(out), *SMALL, *FEW]
    code = (
        f"import sys\nfor name in {ABSENT}: sys.modules[name] = None\nsys.argv = {words!r}\n"
        "from tensorldm.cli.main import run\nrun()\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=240,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
    )
    (out.parent / "told.txt").write_text(told.stdout)
    return out


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "coverage.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_the_new_bundle_is_the_old_model_with_factors_that_reconstruct_uses(bundle, calibrated):
    assert (calibrated / WEIGHTS).read_bytes() == (bundle / WEIGHTS).read_bytes()
    factors = read_info(calibrated).intervals
    assert factors.source == "1 virtual subjects of 1 validation anatomies, 3 samples, 1 steps of dpm++2m"
    assert factors.v1 != 1
    engine = choose(model=calibrated).load(Settings(), device=torch.device("cpu"))
    assert (engine.calibration.fa, engine.calibration.md_by_tissue) == (factors.fa, factors.md_by_tissue)
    assert engine.notes["Intervals"]["source"] == factors.source


def test_on_the_anatomies_that_factors_were_fitted_on_the_level_is_met(calibrated):
    fitted = {
        row["quantity"]: float(row["covered"])
        for row in rows_of(calibrated)
        if (row["split"], row["truth"], row["level"], row["region"]) == ("validation", "clean", "0.95", "mask")
    }
    assert fitted == pytest.approx({"fa": 0.95, "md": 0.95, "v1": 0.95}, abs=0.01)


def test_table_text_and_record_tell_the_same(calibrated):
    record = json.loads((calibrated / "coverage.json").read_text())
    assert record["Factors"] == read_info(calibrated).intervals.model_dump(mode="json")
    assert [row["covered"] for row in record["Coverage"]] == [float(row["covered"]) for row in rows_of(calibrated)]
    assert record["Subjects"]["test"][0]["Anatomy"].startswith("procedural/test")
    assert record["Run"]["Versions"]["torch"]
    text = (calibrated / "coverage.md").read_text()
    told = (calibrated.parent / "told.txt").read_text()
    assert "validation: procedural/validation" in told
    for line in ("FA: half-widths times", "promised coverages"):
        assert line in text
        assert line in told


def attempt(*words: object):
    return CliRunner().invoke(app, ["calibrate", *map(str, words)])


def test_what_cannot_work_is_refused_before_anything_is_drawn(bundle, calibrated, tmp_path, monkeypatch):
    monkeypatch.setattr(calibrating, "calibrate", lambda *_: pytest.fail("work was begun"))
    new, data = tmp_path / "new", ("--data", "cohort:procedural")
    for words, error, match in (
        ((bundle, *data, "--out", calibrated), DataError, "there is a bundle already"),
        ((bundle, *data, "--out", new, "--samples", 1), ConfigError, "one sample has no spread"),
        ((bundle, *data, "--out", new, "--factors", "two"), ConfigError, "--factors is 'two'"),
        ((bundle, *data, "--out", new, "--sampler", "euler"), ConfigError, "--sampler is 'euler'"),
        ((bundle, "--data", "store", "--out", new), ConfigError, "only virtual subjects"),
        ((tmp_path / "none", *data, "--out", new), DataError, "no model there"),
        ((bundle, *data, "--out", new, "--scan", tmp_path / "a.nii.gz"), DataError, "no such file"),
    ):
        result = attempt(*words, *SMALL)
        assert isinstance(result.exception, error)
        assert match in str(result.exception)
    assert not new.exists()


def test_a_model_that_only_expects_is_refused(tmp_path):
    config = read_config(RunConfig, "base").model
    write_bundle(
        tmp_path / "old",
        build_model(config).state_dict(),
        config=config,
        joint=("off", "off"),
        card=Card(stages=(0,)),
        precision="float16",
    )
    result = attempt(tmp_path / "old", "--data", "cohort:procedural", "--out", tmp_path / "new", *SMALL)
    assert "it draws no samples" in str(result.exception)


def test_stopped_before_the_first_subject_it_leaves_nothing_behind(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(observing, "judge", stopped)
    assert attempt(bundle, "--data", "cohort:procedural", "--out", tmp_path / "new", *SMALL, *FEW).exit_code != 0
    assert list(tmp_path.iterdir()) == []


def stopped(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_the_same_command_again_goes_on_and_gives_what_an_unbroken_run_gives(bundle, calibrated, tmp_path, monkeypatch):
    out, judged, judge = tmp_path / "new", [], observing.judge

    def once_then_stopped(*arrays: torch.Tensor):
        if judged:
            raise KeyboardInterrupt
        judged.append(arrays)
        return judge(*arrays)

    command = (bundle, "--data", "cohort:procedural", "--out", out, *SMALL, *FEW)
    monkeypatch.setattr(observing, "judge", once_then_stopped)
    assert attempt(*command).exit_code != 0
    assert [path.name for path in out.iterdir()] == ["observed"]

    drawn: list[str] = []
    monkeypatch.setattr(observing, "judge", lambda *arrays: drawn.append("test") or judge(*arrays))
    told = attempt(*command)
    assert told.exit_code == 0
    assert drawn == ["test"]
    assert "kept from before" in told.output
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in calibrated.iterdir())
    for name in ("coverage.csv", INDEX):
        assert (out / name).read_text() == (calibrated / name).read_text()


def test_what_was_drawn_in_another_way_is_drawn_again(bundle, tmp_path, monkeypatch):
    out, counted, judge = tmp_path / "new", [], observing.judge
    monkeypatch.setattr(calibrating, "_write", stopped)
    monkeypatch.setattr(observing, "judge", lambda *arrays: counted.append(1) or judge(*arrays))
    for seed, drawn in ((0, 2), (1, 4)):
        assert attempt(bundle, "--data", "cohort:procedural", "--out", out, "--seed", seed, *SMALL, *FEW).exit_code != 0
        assert len(counted) == drawn
