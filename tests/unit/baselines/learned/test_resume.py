"""Rivals with one, two and several kinds of state go on bit for bit from where a signal stopped them."""

import os
import signal

import pytest
import torch

from tensorldm.baselines.learned.bundles import read_rival_info
from tensorldm.baselines.learned.runs import open_run
from tensorldm.training.checkpoint import checkpoints, read_newest
from tensorldm.training.run import bundle_of, run_training
from tensorldm.training.runlog import RunLog

SHORT = ["validation.subjects=0", "keep.every=1", "hardware.accelerator=cpu"]


def _train(name, out, *, stages, steps=3):
    overrides = [*SHORT, *(f"stages.{number}.steps={steps}" for number in stages)]
    method, settings = open_run(name, "smoke", overrides)
    return run_training(settings, "cohort:procedural", out=out, stages=stages, method=method)


@pytest.mark.parametrize(("name", "stages"), [("pix2pix", [1]), ("diffdti", [1]), ("ldm", [1, 2])])
def test_a_rival_stopped_half_way_and_resumed_has_the_weights_of_one_that_was_not(name, stages, tmp_path, monkeypatch):
    assert _train(name, tmp_path / "unbroken", stages=stages)
    stopped: set[str] = set()
    advance = RunLog.advance

    def stop_once_a_stage(log: RunLog, step: int, *, steps: int) -> None:
        title = str(log.progress.tasks[0].description)
        if step == 2 and title not in stopped:
            stopped.add(title)
            os.kill(os.getpid(), signal.SIGTERM)
        advance(log, step, steps=steps)

    monkeypatch.setattr(RunLog, "advance", stop_once_a_stage)
    runs = 1
    while not _train(name, tmp_path / "broken", stages=stages):
        runs += 1
    assert runs == 1 + len(stages)
    for number in stages:
        ends = [read_newest(tmp_path / run / f"stage{number}" / "checkpoints") for run in ("broken", "unbroken")]
        assert ends[0].tensors.keys() == ends[1].tensors.keys()
        assert all(torch.equal(ends[0].tensors[key], ends[1].tensors[key]) for key in ends[0].tensors)
    hashes = {read_rival_info(bundle_of(tmp_path / run, stages[-1])).weights_sha256 for run in ("broken", "unbroken")}
    assert len(hashes) == 1


def test_each_player_moves_its_own_networks_and_keeps_an_optimiser_of_its_own(tmp_path):
    method, settings = open_run("pix2pix", "smoke", [*SHORT, "stages.1.steps=1"])
    first = {name: value.clone() for name, value in method.prepare(settings, 1, start=None).model.state_dict().items()}
    assert run_training(settings, "cohort:procedural", out=tmp_path, stages=[1], method=method)
    (folder,) = checkpoints(tmp_path / "stage1" / "checkpoints")
    saved = read_newest(folder.parent)
    for player in ("generator", "critic"):
        owned = saved.owned_by(f"optimizer/{player}")
        assert owned
        assert all(name.startswith(f"{player}.") for name in owned)
    now = saved.owned_by("model")
    moved = {name.split(".")[0] for name in first if not torch.equal(first[name], now[name])}
    assert moved == {"generator", "critic"}


def test_the_denoiser_of_ldm_leaves_the_autoencoders_and_their_codes_alone(tmp_path):
    assert _train("ldm", tmp_path, stages=[1, 2], steps=2)
    before, after = (read_newest(tmp_path / f"stage{number}" / "checkpoints").owned_by("model") for number in (1, 2))
    bundle = {name: value for name, value in after.items() if name.startswith(("tensors.", "scans."))}
    average = read_newest(tmp_path / "stage1" / "checkpoints").owned_by("average")
    assert all(torch.equal(value, average[name]) for name, value in bundle.items())
    assert any(not torch.equal(before[name], after[name]) for name in before if name.startswith("unet."))
    assert not torch.equal(before["latent_spread"], after["latent_spread"])
