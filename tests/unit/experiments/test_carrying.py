"""Trained runs on their way to another machine: halved, cut, put together, and taken for what they are."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from tensorldm.baselines.learned.bundles import load_rival
from tensorldm.bundle import load_bundle, read_info
from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.errors import ConfigError, DataError
from tensorldm.experiments import preparing_runs
from tensorldm.experiments.carrying import export_runs, import_runs
from tensorldm.experiments.pieces import read_pieces, write_pieces
from tensorldm.experiments.recipes import RunReference, TrainingConfig
from tensorldm.experiments.training import train_runs
from tensorldm.experiments.training_log import TrainingLog

LARGEST = 40_000
RUNS = {
    "full": {"stages": [1, 4], "minutes": {"4": 2.0}},
    "no-cca": {"start": "full/4", "stages": [5], "changes": ["model.unet_cca=none"]},
    "ldm": {"method": "ldm"},
}


def settings(**changes) -> TrainingConfig:
    return TrainingConfig.model_validate({"size": "smoke", "runs": RUNS, **changes})


def go(config: TrainingConfig, out, **more) -> dict[str, tuple[str, str]]:
    return {each.run: (each.end, each.words) for each in train_runs(config, out, seed=0, say=lambda line: None, **more)}


@pytest.fixture(scope="module")
def study(fake_training, tmp_path_factory):
    """A study whose runs are trained, as far as anybody can see."""
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(preparing_runs, "run_training", fake_training())
        go(settings(), folder)
    return folder


@pytest.fixture
def trained(study, tmp_path):
    return shutil.copytree(study, tmp_path / "there")


def test_a_carried_study_is_taken_for_trained_though_its_weights_are_half(trained, fake, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["full", "no-cca", "ldm"], largest=LARGEST)
    import_runs([tmp_path / "carried"], tmp_path / "here")
    loop = fake()
    # no-cca began from weights that are no longer here bit by bit: they are known by the hash that came along
    assert go(settings(), tmp_path / "here") == dict.fromkeys(RUNS, ("trained", "before"))
    assert loop.calls == []


def test_weights_arrive_to_half_precision_and_what_counts_in_buffers_stays_whole(trained, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["ldm", "full"], largest=LARGEST)
    import_runs([tmp_path / "carried"], tmp_path / "here")
    place = "runs/ldm/stage2/bundle"
    before, after = (load_rival(study / place)[0].state_dict() for study in (trained, tmp_path / "here"))
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=1e-3, atol=1e-7, msg=name)
    stored = load_file(tmp_path / "here" / place / "weights.safetensors")
    assert stored["tensors.quantizer.quantizer.ema_cluster_size"].dtype == torch.float32
    assert stored["unet.conv_in.conv.weight"].dtype == torch.float16
    ours = [read_info(study / "runs/full/stage4/bundle") for study in (trained, tmp_path / "here")]
    assert [info.precision for info in ours] == ["float32", "float16"]
    assert ours[0].model == ours[1].model
    load_bundle(tmp_path / "here" / "runs/full/stage4/bundle")


def test_in_full_precision_a_bundle_arrives_bit_by_bit(trained, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["ldm"], precision="float32", largest=LARGEST)
    import_runs([tmp_path / "carried"], tmp_path / "here")
    for name in ("weights.safetensors", "bundle.json"):
        place = f"runs/ldm/stage2/bundle/{name}"
        assert (tmp_path / "here" / place).read_bytes() == (trained / place).read_bytes()


def test_no_file_is_larger_than_was_asked_and_what_is_half_is_not_rounded_twice(trained, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["ldm"], largest=LARGEST)
    pieces = list((tmp_path / "carried").rglob("weights.safetensors*"))
    assert len(pieces) > 1
    assert all(path.stat().st_size <= LARGEST for path in pieces)
    import_runs([tmp_path / "carried"], tmp_path / "here")
    export_runs(tmp_path / "here", tmp_path / "again", largest=10**9)
    import_runs([tmp_path / "again"], tmp_path / "third")
    third, second = (tmp_path / study / "runs/ldm/stage2" for study in ("third", "here"))
    assert (third / "bundle/bundle.json").read_bytes() == (second / "bundle/bundle.json").read_bytes()
    assert (third / "carried.json").read_bytes() == (second / "carried.json").read_bytes()


def test_the_record_of_a_run_comes_along_once(trained, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["full"], largest=LARGEST)
    for _ in range(2):
        taken = import_runs([tmp_path / "carried"], tmp_path / "here")
    assert [each.was_there for each in taken] == [True]
    there, here = (TrainingLog.of(study).records("full") for study in (trained, tmp_path / "here"))
    assert here == there
    assert here[0]["seed"] == 0
    assert here[0]["minutes"] == {"4": 2.0}
    assert here[0]["hardware"].startswith("cpu: ")
    recipe = "runs/full/recipe.json"
    assert (tmp_path / "here" / recipe).read_bytes() == (trained / recipe).read_bytes()


def test_a_caption_tells_the_minutes_of_the_run_not_those_of_the_settings_it_is_shown_with(trained, tmp_path):
    log = TrainingLog.of(trained)
    other = settings(time_scale=10.0)
    assert log.describe(RunReference("full", None), other).startswith("2 minutes of training; ")
    assert log.describe(RunReference("no-cca", None), other).startswith("2 minutes of training; ")


def test_a_missing_piece_is_named_and_nothing_of_the_run_is_left_in_the_study(trained, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["ldm"], largest=LARGEST)
    sorted((tmp_path / "carried/ldm/stage2/bundle").glob("*of*"))[1].unlink()
    with pytest.raises(DataError, match="piece 2 is missing"):
        import_runs([tmp_path / "carried"], tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_damaged_piece_is_refused(trained, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["ldm"], largest=LARGEST)
    last = sorted((tmp_path / "carried/ldm/stage2/bundle").glob("*of*"))[-1]
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    with pytest.raises(DataError, match="the hash differs"):
        import_runs([tmp_path / "carried"], tmp_path / "here")


def test_another_run_of_the_same_name_is_never_replaced(trained, fake, tmp_path):
    export_runs(trained, tmp_path / "carried", only=["ldm"], largest=LARGEST)
    fake()
    go(settings(changes=["stages.1.learning_rate=0.5"]), tmp_path / "other", only=["ldm"])
    with pytest.raises(ConfigError, match="begun with another recipe"):
        import_runs([tmp_path / "carried"], tmp_path / "other")
    go(settings(), tmp_path / "same", only=["ldm"])
    index = tmp_path / "same/runs/ldm/stage2/bundle/bundle.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "weights_sha256": "0" * 64}))
    with pytest.raises(ConfigError, match="other weights"):
        import_runs([tmp_path / "carried"], tmp_path / "same")


def test_what_is_not_trained_or_not_exported_is_said(trained, tmp_path):
    with pytest.raises(DataError, match="no such run"):
        export_runs(trained, tmp_path / "carried", only=["unet"], largest=LARGEST)
    shutil.rmtree(trained / "runs/ldm/stage2/bundle")
    with pytest.raises(DataError, match="not trained to there yet"):
        export_runs(trained, tmp_path / "carried", only=["ldm"], largest=LARGEST)
    assert not (tmp_path / "carried").exists()
    with pytest.raises(DataError, match="no exported run"):
        import_runs([tmp_path], tmp_path / "here")


def test_two_commands_carry_a_run(trained, tmp_path):
    def call(*words: object):
        return CliRunner().invoke(app, ["tables", *map(str, words)], catch_exceptions=False)

    told = call("export", trained, "--only", "ldm", "--out", tmp_path / "carried", "--largest", 0.05)
    assert told.exit_code == 0, told.output
    assert "ldm, Stage 2: " in told.output
    told = call("import", tmp_path / "carried", "--out", tmp_path / "here")
    assert told.exit_code == 0, told.output
    assert (tmp_path / "here/runs/ldm/stage2/bundle/bundle.json").is_file()


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 105])
def test_pieces_put_together_are_the_file(tmp_path, size):
    content = bytes(range(size))
    written = write_pieces(tmp_path / "x.bin", content, largest=10)
    assert len(written) == max(1, -(-size // 10))
    assert read_pieces(tmp_path / "x.bin") == content
    assert b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir())) == content  # as cat would
    write_pieces(tmp_path / "x.bin", b"shorter", largest=10)
    assert [path.name for path in tmp_path.iterdir()] == ["x.bin"]
