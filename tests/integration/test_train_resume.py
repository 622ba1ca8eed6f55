"""A run that is interrupted in any way and started again gives the weights of one that was not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tensorldm.bundle import read_info
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError
from tensorldm.training import validation
from tensorldm.training.checkpoint import checkpoints
from tensorldm.training.opened import let_go
from tensorldm.training.run import run_training
from tensorldm.training.runlog import RunLog, read_log
from tensorldm.training.stage_run import StageRun

STEPS = 3
TINY = [
    'data.cohort_set=["shape=[16,16,16]","voxel_mm=[11,11,11]","protocol.directions=[12,12]"]',
    "validation.subjects=0",
    "keep.every=1",
    "keep.log_every=1",
    "stages.1.batch_size=2",
    *(f"stages.{number}.box=[16,16,16]" for number in (2, 3, 4, 5)),
    *(f"stages.{number}.steps={STEPS}" for number in (1, 2, 3, 4, 5)),
]


def _config(*more: str) -> RunConfig:
    return read_config(RunConfig, "smoke", [*TINY, *more])


def _train(out: Path, *more: str, stages: tuple[int, ...] = (1,), restart: bool = False) -> bool:
    return run_training(_config(*more), "cohort:procedural", out=out, stages=stages, restart=restart)


def _hashes(out: Path, stages: tuple[int, ...] = (1,)) -> list[str]:
    return [read_info(out / f"stage{number}" / "bundle").weights_sha256 for number in stages]


@pytest.mark.slow
def test_every_stage_stopped_half_way_and_resumed_gives_bit_identical_weights(tmp_path, monkeypatch):
    all_five = (1, 2, 3, 4, 5)
    assert _train(tmp_path / "unbroken", stages=all_five)

    stopped_at: set[str] = set()
    advance = RunLog.advance

    def stop_once_a_stage(log: RunLog, step: int, *, steps: int) -> None:
        stage = str(log.progress.tasks[0].description)
        if step == 2 and stage not in stopped_at:
            stopped_at.add(stage)
            os.kill(os.getpid(), signal.SIGTERM)
        advance(log, step, steps=steps)

    monkeypatch.setattr(RunLog, "advance", stop_once_a_stage)
    runs = 1
    while not _train(tmp_path / "broken", stages=all_five):
        runs += 1
    assert runs == 1 + len(all_five) == 1 + len(stopped_at)
    assert _hashes(tmp_path / "broken", all_five) == _hashes(tmp_path / "unbroken", all_five)


MOMENTS = {
    "opening the data": (ProceduralSource, "load", 1),
    "validating on the way": (validation, "measure", 1),
    "validating at the end": (validation, "measure", 3),
}
"""What is called then, and at which of its calls the signal comes: step 2 and the end validate on two subjects."""
VALIDATED = ("validation.subjects=2", "validation.every=2", "data.anatomies=2")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    assert _train(out, *VALIDATED)
    return out


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_time_limit_at_another_moment_than_a_step_is_heard_soon_and_nothing_is_lost(
    moment, unbroken, tmp_path, monkeypatch
):
    let_go()  # what the process has opened
    owner, name, fatal = MOMENTS[moment]
    called, calls = getattr(owner, name), []

    def kill_once(*args, **more):
        calls.append(name)
        if len(calls) == fatal:
            os.kill(os.getpid(), signal.SIGTERM)
        return called(*args, **more)

    monkeypatch.setattr(owner, name, kill_once)
    assert not _train(tmp_path, *VALIDATED)
    assert len(calls) == fatal, "the next head or subject is not begun"
    assert _train(tmp_path, *VALIDATED)
    assert _hashes(tmp_path) == _hashes(unbroken)
    for kind in ("best", "bundle"):
        ours, theirs = (read_info(run / "stage1" / kind) for run in (tmp_path, unbroken))
        assert (ours.weights_sha256, ours.card.measures) == (theirs.weights_sha256, theirs.card.measures)
    ours, theirs = ([r for r in read_log(run) if r["event"] == "validation"] for run in (tmp_path, unbroken))
    assert ours == theirs


def test_a_time_limit_between_two_stages_does_not_begin_the_next(tmp_path, monkeypatch):
    written = StageRun._write_bundle

    def kill_then(stage: StageRun, name: str, measures: dict[str, float]) -> None:
        written(stage, name, measures)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(StageRun, "_write_bundle", kill_then)
    assert not _train(tmp_path, stages=(1, 2))
    assert (tmp_path / "stage1" / "bundle").is_dir()
    assert not list((tmp_path / "stage2").glob("checkpoints/*"))


KILLED_IN_MID_WRITE = """
import os, signal
from tensorldm.imaging import atomic
from tensorldm.training import checkpoint

def half(path, content):
    if "{step:08d}" in str(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    atomic.write_bytes(path, content)

def last_moment(path, value):
    if "{later:08d}" in str(path):
        os.kill(os.getpid(), signal.SIGKILL)
    atomic.write_json(path, value)

checkpoint.write_bytes, checkpoint.write_json = half, last_moment
from tensorldm.cli.main import run
run()
"""


@pytest.mark.slow
def test_a_run_killed_twice_in_the_middle_of_writing_goes_on_to_the_same_weights(tmp_path):
    assert _train(tmp_path / "unbroken", "stages.1.steps=5")
    overrides = [word for setting in [*TINY, "stages.1.steps=5"] for word in ("--set", setting)]
    command = ["train", "--config", "smoke", "--data", "cohort:procedural", "--stages", "1", *overrides]
    out = tmp_path / "killed"
    for step, later, left in ((2, 99, 1), (99, 4, 3)):
        program = KILLED_IN_MID_WRITE.format(step=step, later=later)
        ended = subprocess.run(
            [sys.executable, "-c", program, *command, "--out", str(out)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
        assert checkpoints(out / "stage1" / "checkpoints")[-1].name == f"step-{left:08d}"
        assert not (out / "stage1" / "bundle").exists()
    assert _train(out, "stages.1.steps=5")
    assert _hashes(out) == _hashes(tmp_path / "unbroken")
    assert not list((out / "stage1" / "checkpoints").glob(".*"))
    steps = [record["step"] for record in read_log(out) if record["event"] == "train"]
    assert sorted(set(steps)) == [1, 2, 3, 4, 5]


def test_a_changed_setting_refuses_to_resume_names_the_key_and_says_the_ways_out(tmp_path):
    assert _train(tmp_path)
    with pytest.raises(ConfigError, match=r"stages\.1\.learning_rate was 0.002, is now 0.1.*--out.*--restart"):
        _train(tmp_path, "stages.1.learning_rate=0.1")
    with pytest.raises(ConfigError, match=r"cohort\.protocol\.snr"):
        _train(tmp_path, 'data.cohort_set=["shape=[16,16,16]","voxel_mm=[11,11,11]","protocol.snr=[5,9]"]')
    before = _hashes(tmp_path)
    assert _train(tmp_path, "keep.log_every=2")  # how often to log changes no weight
    assert _hashes(tmp_path) == before
    assert _train(tmp_path, "stages.1.learning_rate=0.1", restart=True)
    assert _hashes(tmp_path) != before


def test_a_stage_without_a_start_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigError, match=r"Stage 4 starts from Stage 1 or 2 or 3.*--from-bundle"):
        _train(tmp_path / "run", stages=(4, 5))
    assert not (tmp_path / "run").exists()


def test_a_box_that_the_model_cannot_halve_is_refused_with_the_next_one(tmp_path):
    with pytest.raises(ConfigError, match=r"stages\.1\.box is \[8, 12, 8\].*multiples of 8.*\[8, 16, 8\]"):
        _train(tmp_path, "stages.1.box=[8,12,8]")
