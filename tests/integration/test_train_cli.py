"""The train command as a person meets it."""

import pytest
from typer.testing import CliRunner

from tensorldm.bundle import load_bundle
from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import ConfigError, DataError, TensorldmError
from tensorldm.training.run import parse_stages
from tensorldm.training.runlog import read_log

TINY = [
    "--set",
    'data.cohort_set=["shape=[16,16,16]","voxel_mm=[11,11,11]","protocol.directions=[12,12]"]',
    "--set",
    "hardware.accelerator=cpu",
    "--set",
    "stages.1.steps=2",
    "--set",
    "keep.log_every=1",
]


def _invoke(*words: str):
    return CliRunner().invoke(app, ["train", "--config", "smoke", *words])


def test_a_dry_run_shows_settings_parameters_and_memory_and_writes_nothing(tmp_path):
    shown = _invoke("--data", "cohort:procedural", "--out", str(tmp_path / "run"), "--dry-run", "--set", "seed=42")
    assert shown.exit_code == 0, shown.output
    assert "seed: 42" in shown.output
    assert "MiB" in shown.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("no-such-store", "no store there.*tensorldm prepare"),
        ("cohort:templates:no-such-folder", "no-such-folder: there is no such folder"),
    ],
)
def test_a_dry_run_looks_for_the_data_too(data, sentence, tmp_path):
    answer = _invoke("--data", data, "--out", str(tmp_path / "run"), "--dry-run")
    with pytest.raises(DataError, match=sentence):
        raise answer.exception


def test_a_file_in_the_place_of_the_run_is_told_at_once(tmp_path):
    (tmp_path / "run").write_text("mine")
    answer = _invoke("--data", "cohort:procedural", "--out", str(tmp_path / "run"), "--dry-run")
    with pytest.raises(DataError, match="a file of this name is in the way"):
        raise answer.exception


def test_a_run_leaves_a_model_that_loads_a_log_and_validation_measures(tmp_path):
    done = _invoke("--data", "cohort:procedural", "--out", str(tmp_path), "--stages", "1", *TINY)
    assert done.exit_code == 0, done.output
    model, info = load_bundle(tmp_path / "stage1" / "bundle")
    assert info.card.stages == (1,)
    assert info.card.num_anatomies == 1
    assert info.card.measures["LEM"] > 0
    assert not model.training
    events = [(record["event"], record["step"]) for record in read_log(tmp_path)]
    assert events == [("start", 0), ("train", 1), ("train", 2), ("validation", 2)]
    first, *_, last = read_log(tmp_path)
    assert first["loss"] > 0
    assert last["loss"] > 0
    assert "loss" not in info.card.measures, "losses of stages cannot be compared, as measures can"


@pytest.mark.parametrize(
    ("words", "error", "sentence"),
    [
        (["--data", "cohort:mars"], ConfigError, "--data cohort:mars: there is no such source"),
        (["--data", "no-such-store"], DataError, "no store there.*tensorldm prepare"),
        (["--data", "cohort:procedural", "--stages", "6"], ConfigError, "stages of 0 to 5"),
        (
            ["--data", "cohort:procedural", "--set", "stages.1.stepz=3"],
            ConfigError,
            "there is no setting 'stages.1.stepz'",
        ),
        (["--data", "cohort:procedural", "--set", "stages.1.steps=0"], ConfigError, "greater than 0"),
        (
            ["--data", "cohort:procedural", *TINY, "--set", "hardware.precision=bf16-mixed"],
            ConfigError,
            "on a CPU convolutions in bfloat16 give wrong numbers. Use 'auto'",
        ),
        (["--data", "cohort:procedural", "--from-bundle", "no-such-bundle"], DataError, "no model there"),
        (
            ["--data", "cohort:procedural", "--config", "base", "--stages", "1-5"],
            ConfigError,
            "Stage 1 starts from Stage 0, which is not in .*--from-bundle",
        ),
        (
            ["--data", "cohort:procedural", "--config", "base", "--stages", "2"],
            ConfigError,
            "Stage 2 starts from Stage 0 or 1, which is not in .*--from-bundle",
        ),
    ],
)
def test_a_mistake_is_answered_with_a_sentence_before_anything_is_trained(words, error, sentence, tmp_path):
    answer = _invoke(*TINY, *words, "--out", str(tmp_path / "run"))
    assert isinstance(answer.exception, error)
    assert isinstance(answer.exception, TensorldmError)
    with pytest.raises(error, match=sentence):
        raise answer.exception
    assert not (tmp_path / "run" / "stage1" / "checkpoints").exists()


def test_stages_are_named_singly_by_range_or_by_list():
    assert parse_stages("1-5") == [1, 2, 3, 4, 5]
    assert parse_stages("4") == [4]
    assert parse_stages("1,2,4-5") == [1, 2, 4, 5]
    for bad in ("", "6", "3-1", "2,1", "1,1", "a"):
        with pytest.raises(ConfigError, match="stages of 0 to 5"):
            parse_stages(bad)
