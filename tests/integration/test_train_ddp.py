"""Several processes give what one process with the joined batch gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tensorldm.build import build_model
from tensorldm.bundle import WEIGHTS
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.training.run import bundle_of, run_training

SETTINGS = [
    'data.cohort_set=["shape=[16,16,16]","voxel_mm=[11,11,11]","protocol.directions=[12,12]"]',
    "data.subjects=0",
    "hardware.accelerator=cpu",
    "validation.subjects=0",
    *(f"stages.{number}.box=[16,16,16]" for number in (2, 3, 4, 5)),
    *(f"stages.{number}.steps=3" for number in (1, 2, 3, 4, 5)),
]
STEPS_TOGETHER = {1: 4, 3: 2, 4: 2}
"""Samples of a step in a stage whose codebook moves, in the one with the logarithm, and in one that draws noise."""


def _settings(processes: int) -> list[str]:
    return [*SETTINGS, *(f"stages.{stage}.batch_size={size // processes}" for stage, size in STEPS_TOGETHER.items())]


def _one_process(out: Path, stages: list[int], *, start: Path | None = None) -> None:
    config = read_config(RunConfig, "smoke", _settings(1))
    assert run_training(config, "cohort:procedural", out=out, stages=stages, start=start)


def _two_processes(out: Path, stages: str, *more: str) -> None:
    overrides = [word for setting in _settings(2) for word in ("--set", setting)]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tensorldm"]
    command = ["train", "--config", "smoke", "--data", "cohort:procedural", "--stages", stages, *overrides, *more]
    ended = subprocess.run(
        [*launch, *command, "--out", str(out)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def _length(weights: dict[str, torch.Tensor]) -> float:
    return float(sum(value.double().square().sum() for value in weights.values()) ** 0.5)


def _assert_same(one: Path, two: Path, *, before: dict[str, torch.Tensor]) -> None:
    first, second = (load_file(folder / WEIGHTS) for folder in (one, two))
    weights = [name for name in first if ".quantizers." not in name]
    apart = _length({name: first[name] - second[name] for name in weights})
    moved = _length({name: first[name] - before[name] for name in weights})
    assert apart < 1e-4 * moved, (apart, moved)
    for name in first:
        if name.endswith("codebook"):  # a latent half-way between two codes falls to either by rounding
            other_codes = ((first[name] - second[name]).abs().amax(dim=1) > 1e-3).sum()
            assert other_codes <= 0.1 * len(first[name]), name


@pytest.mark.slow
def test_two_processes_give_the_weights_of_one_with_the_doubled_batch(tmp_path: Path):
    fresh = build_model(read_config(RunConfig, "smoke").model).state_dict()
    _one_process(tmp_path / "one", [1])
    _two_processes(tmp_path / "two", "1")
    start = bundle_of(tmp_path / "one", 1)
    _assert_same(start, bundle_of(tmp_path / "two", 1), before=fresh)

    _one_process(tmp_path / "one-later", [3, 4], start=start)
    _two_processes(tmp_path / "two-later", "3,4", "--from-bundle", str(start))
    for number, before in (
        (3, load_file(start / WEIGHTS)),
        (4, load_file(bundle_of(tmp_path / "one-later", 3) / WEIGHTS)),
    ):
        _assert_same(
            bundle_of(tmp_path / "one-later", number), bundle_of(tmp_path / "two-later", number), before=before
        )
