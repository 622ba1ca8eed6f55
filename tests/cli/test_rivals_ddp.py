"""An adversarial rival on two processes, each player reducing its own gradients, gives what one process gives."""

import os
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from tensorldm.baselines.learned.runs import open_run
from tensorldm.training.run import bundle_of, run_training

SETTINGS = ["hardware.accelerator=cpu", "validation.subjects=0", "data.subjects=0", "stages.1.steps=2"]


@pytest.mark.slow
def test_two_processes_give_the_generator_of_one_with_the_joined_batch(tmp_path):
    method, settings = open_run("pix2pix", "smoke", [*SETTINGS, "stages.1.batch_size=2"])
    first = {name: value.clone() for name, value in method.prepare(settings, 1, start=None).model.state_dict().items()}
    assert run_training(settings, "cohort:procedural", out=tmp_path / "one", stages=[1], method=method)

    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tensorldm"]
    command = ["train", "--method", "pix2pix", "--config", "smoke", "--data", "cohort:procedural"]
    overrides = [word for setting in [*SETTINGS, "stages.1.batch_size=1"] for word in ("--set", setting)]
    ended = subprocess.run(
        [*launch, *command, *overrides, "--out", str(tmp_path / "two")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    one, two = (load_file(bundle_of(tmp_path / run, 1) / "weights.safetensors") for run in ("one", "two"))
    moved = max(float((one[name] - first[name]).abs().max()) for name in one)
    apart = max(float((one[name] - two[name]).abs().max()) for name in one)
    assert moved > 1e-3
    assert apart < 0.02 * moved
