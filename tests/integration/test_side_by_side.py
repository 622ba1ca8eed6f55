"""Runs of a study at the same time: as those one after the other, and all of them save their state when asked."""

import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tensorldm.experiments.recipes import TrainingConfig
from tensorldm.experiments.side_by_side import train_side_by_side
from tensorldm.experiments.training import train_runs
from tensorldm.experiments.training_log import TrainingLog, steps_of

SHORT = ["stages.1.steps=2", "stages.1.warmup_steps=0", "validation.subjects=1", "keep.log_every=1"]


def study(runs: dict) -> dict:
    return {"size": "smoke", "data": "cohort:procedural", "rates": [], "changes": SHORT, "runs": runs}


def run(method: str, *changes: str, **more) -> dict:
    return {"method": method, "stages": [1], "changes": list(changes), **more}


@pytest.mark.slow
def test_runs_beside_each_other_end_as_runs_in_turn(tmp_path):
    runs = {
        "broken": run("unet", "stages.1.learning_rate=1e30", "stages.1.steps=40"),
        "after-it": {"method": "unet", "start": "broken/1", "stages": [2]},
        "unet": run("unet"),
        "superdti": run("superdti"),
    }
    training, said = TrainingConfig.model_validate(study(runs)), []
    together = train_side_by_side(
        training, tmp_path / "together", seed=0, at_once=2, accelerator="cpu", say=said.append
    )
    in_turn = train_runs(training, tmp_path / "in turn", seed=0, accelerator="cpu", say=said.append)
    assert [each.end for each in together] == ["failed", "left out", "trained", "trained"]
    assert together == in_turn
    for name in ("unet", "superdti"):
        ours, theirs = (
            load_file(tmp_path / way / "runs" / name / "stage1" / "bundle" / "weights.safetensors")
            for way in ("together", "in turn")
        )
        assert ours.keys() == theirs.keys()
        for key, weight in ours.items():  # other numbers of threads sum in another order
            torch.testing.assert_close(weight, theirs[key], rtol=1e-3, atol=1e-4)
    records = {record["run"]: record for record in TrainingLog.of(tmp_path / "together").records()}
    assert sorted(records) == ["broken", "superdti", "unet"]
    begun_together = [records[name] for name in ("broken", "unet")]  # who comes after them may be left alone
    assert all(record["at_once"] == 2 and "2 runs at a time" in record["hardware"] for record in begun_together)


@pytest.mark.slow
def test_the_log_says_how_many_runs_there_were_and_not_how_many_were_allowed(tmp_path):
    """A run that is mended by itself has more steps in its minutes than those that shared the GPU."""
    training = TrainingConfig.model_validate(study({"unet": run("unet"), "superdti": run("superdti")}))
    said: list[str] = []
    train_side_by_side(training, tmp_path, seed=0, at_once=3, only=["unet"], accelerator="cpu", say=said.append)
    (record,) = TrainingLog.of(tmp_path).records()
    assert record["event"] == "trained"
    assert record["at_once"] == 1
    assert "at a time" not in record["hardware"]


@pytest.mark.slow
def test_asked_to_end_all_runs_save_their_state_and_the_same_command_goes_on(tmp_path):
    endless = ("stages.1.steps=100000",)
    words = {
        "training": study({"unet": run("unet", *endless), "superdti": run("superdti", *endless)}),
        "groups": {"virtual": {"title": "virtual", "virtual": {"subjects": 1, "source": "procedural"}}},
        "methods": {"unet": {"bundle": "run:unet"}, "ade": {"analytic": "ade"}},
        "comparisons": {"all": {"title": "all", "ours": "unet", "methods": ["ade"]}},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(words))
    command = [sys.executable, "-m", "tensorldm", "tables", "train", "--config", str(tmp_path / "study.yaml")]
    command += ["--out", str(tmp_path / "out"), "--at-once", "2", "--no-tables", "--device", "cpu"]
    reached: dict[str, int] = {}
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_until_beyond(tmp_path / "out" / "runs", reached, process)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 143, said
        assert said.count("stopped (the same command goes on)") == 2, said
        for name in ("unet", "superdti"):
            assert list((tmp_path / "out" / "runs" / name / "stage1" / "checkpoints").iterdir())
        reached = {name: steps_of(tmp_path / "out" / "runs" / name)["1"] for name in ("unet", "superdti")}


def wait_until_beyond(runs, reached: dict[str, int], process: subprocess.Popen) -> None:
    """Until both runs have done steps that they had not done before."""
    until = time.monotonic() + 240
    while time.monotonic() < until and process.poll() is None:
        if all(steps_of(runs / name).get("1", 0) > reached.get(name, 0) + 2 for name in ("unet", "superdti")):
            return
        time.sleep(0.3)
    raise AssertionError(f"not reached: {process.poll()} {process.communicate(timeout=10)}")
