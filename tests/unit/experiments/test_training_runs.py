"""One command for many runs: what is missing is trained in order, what fails is noted, ablations branch off."""

import json
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest
import torch
import yaml
from typer.testing import CliRunner

from tensorldm.bundle import load_bundle, read_info, write_bundle
from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.errors import ConfigError, TensorldmError
from tensorldm.experiments import preparing_runs, side_by_side, training
from tensorldm.experiments.ablated import AblatedMethod
from tensorldm.experiments.branching import start_for
from tensorldm.experiments.preparing_runs import make_ready
from tensorldm.experiments.recipes import RunReference, TrainingConfig
from tensorldm.experiments.training import train_runs
from tensorldm.experiments.training_log import TrainingLog
from tensorldm.training.validation import SCORE

RUNS = {
    "full": {"stages": [1, 4], "minutes": {"4": 2.0}},
    "no-cca": {"start": "full/4", "stages": [5], "changes": ["model.unet_cca=none"]},
    "superdti": {"method": "superdti"},
}


def settings(**changes) -> TrainingConfig:
    return TrainingConfig.model_validate({"size": "smoke", "runs": RUNS, **changes})


def go(config: TrainingConfig, out, **more) -> dict[str, str]:
    return {each.run: each.end for each in train_runs(config, out, seed=0, say=lambda line: None, **more)}


def test_every_run_is_trained_once_and_the_same_command_finds_them_done(fake, tmp_path):
    loop = fake()
    assert go(settings(), tmp_path) == dict.fromkeys(RUNS, "trained")
    assert [name for name, _ in loop.calls] == ["full", "no-cca", "superdti"]
    assert go(settings(), tmp_path) == dict.fromkeys(RUNS, "trained")
    assert len(loop.calls) == 3
    events = [(record["run"], record["event"]) for record in TrainingLog.of(tmp_path).records()]
    assert events == [(name, "trained") for name in RUNS]


def test_a_run_that_fails_is_noted_and_the_others_go_on(fake, tmp_path):
    fake(full=TensorldmError("Stage 1, step 3: loss is not finite."))
    assert go(settings(), tmp_path) == {"full": "failed", "no-cca": "left out", "superdti": "trained"}
    (record,) = TrainingLog.of(tmp_path).records("full")
    assert record["words"] == "Stage 1, step 3: loss is not finite."


def test_a_bug_in_one_run_leaves_its_traceback_and_the_others_go_on(fake, tmp_path):
    fake(full=ZeroDivisionError("a bug"))
    assert go(settings(), tmp_path)["superdti"] == "trained"
    assert "ZeroDivisionError: a bug" in (tmp_path / "runs" / "full" / "error.txt").read_text()


def test_a_bug_or_a_full_gpu_in_a_trial_of_a_rate_does_not_stop_the_others(fake, tmp_path):
    loop = fake(**{"0.5": ZeroDivisionError("a bug")})
    config = settings(rates=(0.5,), runs={"superdti": {"method": "superdti"}, "unet": {"method": "unet"}})
    assert go(config, tmp_path) == {"superdti": "failed", "unet": "failed"}
    assert len(loop.calls) == 2
    assert "ZeroDivisionError: a bug" in (tmp_path / "runs" / "unet" / "error.txt").read_text()
    loop.ends["0.5"] = torch.OutOfMemoryError()
    assert go(config, tmp_path) == {"superdti": "failed", "unet": "failed"}
    loop.ends.clear()
    assert go(config, tmp_path) == {"superdti": "trained", "unet": "trained"}


def test_a_full_gpu_is_told_as_such(fake, tmp_path):
    fake(superdti=torch.OutOfMemoryError())
    go(settings(), tmp_path, only=["superdti"])
    (record,) = TrainingLog.of(tmp_path).records()
    assert (record["event"], record["words"]) == (
        "failed",
        "out of GPU memory: lower its batch_size and raise accumulate",
    )


def test_a_stopped_run_ends_the_whole_and_the_next_call_goes_on_from_it(fake, tmp_path):
    loop = fake(**{"no-cca": "stop"})
    assert go(settings(), tmp_path) == {"full": "trained", "no-cca": "stopped"}
    loop.ends.clear()
    assert go(settings(), tmp_path) == dict.fromkeys(RUNS, "trained")
    assert [name for name, _ in loop.calls] == ["full", "no-cca", "no-cca", "superdti"]


def test_a_run_does_not_go_on_by_another_recipe(fake, tmp_path):
    fake()
    go(settings(), tmp_path)
    changed = settings(time_scale=0.5)
    said = []
    train_runs(changed, tmp_path, seed=0, only=["full"], say=said.append)
    assert "this run was begun with other settings" in said[-1]
    assert go(changed, tmp_path)["superdti"] == "trained"  # it has no minutes, so it is the same


def test_weights_that_were_trained_anew_are_not_taken_for_those_of_before(fake, tmp_path):
    fake()
    go(settings(), tmp_path)
    model, info = load_bundle(tmp_path / "runs" / "full" / "stage4" / "bundle")
    weights = {name: value + 1 if value.is_floating_point() else value for name, value in model.state_dict().items()}
    write_bundle(
        tmp_path / "runs" / "full" / "stage4" / "bundle",
        weights,
        config=info.model,
        joint=("off", "off"),
        card=info.card,
    )
    with pytest.raises(ConfigError, match="begun with other start"):
        make_ready(settings(), "no-cca", tmp_path, seed=0)


def test_the_learning_rate_with_the_best_validation_is_taken_and_remembered(fake, tmp_path):
    def score(config):
        return abs(config.stages["1"].learning_rate - 2e-3)

    loop = fake(score=score)
    rate = make_ready(settings(), "superdti", tmp_path / "other", seed=0).settings.stages["1"].learning_rate
    factors = (0.1, 2e-3 / rate, 10.0)
    config = settings(rates=factors, trial_share=0.5)
    assert go(config, tmp_path, only=["superdti"]) == {"superdti": "trained"}
    assert [name for name, _ in loop.calls] == [*(f"{factor:g}" for factor in factors), "superdti"]
    chosen = json.loads((tmp_path / "runs" / "superdti" / "rate.json").read_text())
    assert chosen["factor"] == pytest.approx(factors[1])
    (record,) = TrainingLog.of(tmp_path).records()
    assert record["rate_factor"] == pytest.approx(factors[1])
    assert record["measures"][SCORE] == pytest.approx(0, abs=1e-12)


def test_trials_are_shorter_by_their_share_and_a_rate_that_explodes_is_not_taken(fake, monkeypatch, tmp_path):
    steps, plain = [], make_ready(settings(), "superdti", tmp_path / "other", seed=0).settings.stages["1"]
    write = fake()

    def loop(config, data, **more):
        steps.append(config.stages["1"].steps)
        if config.stages["1"].learning_rate > 5 * plain.learning_rate:
            raise TensorldmError("Stage 1, step 2: loss is not finite.")
        return write(config, data, **more)

    monkeypatch.setattr(preparing_runs, "run_training", loop)
    go(settings(rates=(10.0, 1.0), trial_share=0.25), tmp_path, only=["superdti"])
    assert steps == [plain.steps // 4, plain.steps // 4, plain.steps]
    rate = json.loads((tmp_path / "runs" / "superdti" / "rate.json").read_text())
    assert rate == {"factor": 1.0, SCORE: {"10": None, "1": 1.0}}


def test_a_trial_trains_the_stages_that_are_tried_and_its_rate_is_theirs_alone(fake, monkeypatch, tmp_path):
    seen, write = [], fake(unet="stop")
    plain = make_ready(settings(runs={"unet": {"method": "unet"}}), "unet", tmp_path / "other", seed=0).settings

    def loop(config, data, **more):
        factors = [config.stages[n].learning_rate / plain.stages[n].learning_rate for n in ("1", "2")]
        seen.append((more["out"].name, more["stages"], pytest.approx(factors)))
        return write(config, data, **more)

    monkeypatch.setattr(preparing_runs, "run_training", loop)
    config = settings(runs={"unet": {"method": "unet", "tried": [1]}}, rates=(0.5,))
    assert go(config, tmp_path) == {"unet": "stopped"}
    write.ends.clear()
    assert go(config, tmp_path) == {"unet": "trained"}  # by the rate that was chosen before
    whole = ("unet", (1, 2), [0.5, 1])
    assert seen == [("0.5", (1,), [0.5, 1]), whole, whole]
    told = TrainingLog.of(tmp_path).describe(RunReference("unet", None), config)
    assert "0.5 times the preset's learning rate in Stage 1; " in told


@pytest.mark.parametrize(("before", "after"), [([1], []), ([], [1])])
def test_a_rate_that_was_tried_on_some_stages_is_not_taken_for_that_of_others(before, after, fake, tmp_path):
    def trying(stages: list[int]) -> TrainingConfig:
        return settings(runs={"unet": {"method": "unet", "tried": stages}}, rates=(0.5,))

    fake(unet="stop")
    assert go(trying(before), tmp_path) == {"unet": "stopped"}
    said = []
    train_runs(trying(after), tmp_path, seed=0, say=said.append)
    assert "this run was begun with other tried" in said[-1]
    assert go(trying(before), tmp_path) == {"unet": "stopped"}


def test_stages_to_try_change_nothing_where_they_are_all_or_no_rate_is_tried(fake, tmp_path):
    """So that a run from before there was a choice goes on, and can be carried to where there is one."""
    fake()
    for place, (stages, rates) in enumerate([([], (0.5,)), ([1, 2], (0.5,)), ([], ()), ([1], ())]):
        go(settings(runs={"unet": {"method": "unet", "tried": stages}}, rates=rates), tmp_path / str(place))
    recipes = [(tmp_path / str(place) / "runs" / "unet" / "recipe.json").read_text() for place in range(4)]
    assert recipes[0] == recipes[1]
    assert recipes[2] == recipes[3]


def test_the_rate_rises_in_a_trial_in_its_share_of_the_steps(fake, monkeypatch, tmp_path):
    """A trial of seven hundredths of the time would end before a hundred steps of rising do."""
    seen, write = [], fake()

    def loop(config, data, **more):
        seen.append((config.stages["1"].warmup_steps, config.stages["1"].minutes))
        return write(config, data, **more)

    monkeypatch.setattr(preparing_runs, "run_training", loop)
    runs = {"superdti": {"method": "superdti", "minutes": {1: 6.0}, "changes": ["stages.1.warmup_steps=100"]}}
    go(settings(runs=runs, rates=(1.0,), trial_share=0.07), tmp_path)
    assert seen == [(7, pytest.approx(0.42)), (100, 6.0)]


def test_a_signal_between_two_trials_or_runs_ends_the_study_and_the_next_call_goes_on(fake, monkeypatch, tmp_path):
    """A trial, or a run, that is just ending hears it too late to stop: whoever would begin the next does."""
    write, calls, fatal = fake(), [], {1, 4}

    def loop(config, data, *, out, **more):
        calls.append(out.name)
        if len(calls) in fatal:
            os.kill(os.getpid(), signal.SIGTERM)
        return write(config, data, out=out, **more)

    monkeypatch.setattr(preparing_runs, "run_training", loop)
    config = settings(runs={"a": {"method": "superdti"}, "b": {"method": "superdti"}}, rates=(0.5, 1.0))
    assert go(config, tmp_path) == {"a": "stopped"}
    assert calls == ["0.5"]
    assert go(config, tmp_path) == {"a": "trained", "b": "stopped"}
    assert calls[1:] == ["0.5", "1", "a"], "of a finished trial the loop itself does nothing again"
    assert go(config, tmp_path) == {"a": "trained", "b": "trained"}


@pytest.mark.parametrize("at", ["training", "measuring"])
def test_a_signal_at_the_end_of_training_or_while_measuring_is_told_by_the_exit_code(
    at, fake, scans, monkeypatch, tmp_path
):
    from tensorldm.experiments import study

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    write, measure, measured = fake(), study.measure_all, []

    def loop(*args, **more):
        if at == "training":
            kill()
        return write(*args, **more)

    def measuring(*args, **more):
        measured.append(at)
        if at == "measuring":
            kill()
        return measure(*args, **more)

    monkeypatch.setattr(preparing_runs, "run_training", loop)
    monkeypatch.setattr(study, "measure_all", measuring)
    words = {
        "training": {"size": "smoke", "runs": {"a": {"method": "superdti"}}},
        "groups": {"scans": {"scans": [str(scans[0])]}},
        "methods": {"a": {"bundle": "run:a"}, "ade": {"analytic": "ade"}},
        "comparisons": {"all": {"title": "all", "ours": "a", "methods": ["ade"]}},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(words))
    ended = CliRunner().invoke(
        app,
        [
            "tables",
            "train",
            "--config",
            str(tmp_path / "study.yaml"),
            "--out",
            str(tmp_path / "out"),
            "--device",
            "cpu",
        ],
    )
    assert ended.exit_code == 143, ended.output
    assert measured == ([] if at == "training" else ["measuring"])
    assert not (tmp_path / "out" / "tables").exists()


def test_what_a_caption_says_of_the_budget_is_what_was_spent(fake, tmp_path, monkeypatch):
    fake()
    monkeypatch.setattr(training, "steps_of", lambda run: {"1": 30, "4": 12})
    go(settings(), tmp_path)
    log = TrainingLog.of(tmp_path)
    assert log.describe(RunReference("full", None), settings()).startswith(
        "2 minutes of training; Stage 1: 30 steps, Stage 4: 12 steps; "
    )
    assert log.describe(RunReference("full", 1), settings()).startswith("Stage 1: 30 steps; ")
    assert "from full/4" in log.describe(RunReference("no-cca", None), settings())
    assert log.describe(RunReference("unet", None), settings()) == ""


def test_an_ablation_branches_off_with_the_same_weights_and_other_switches(make_bundle, tmp_path):
    bundle = make_bundle(4)
    config = read_config(RunConfig, "smoke", ["model.unet_cca=none", "model.unet.routing=uniform"]).model
    branch = start_for(bundle, config, folder=tmp_path / "start")
    assert read_info(branch).model == config
    before, after = (load_bundle(each)[0].state_dict() for each in (bundle, branch))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert start_for(bundle, read_info(bundle).model, folder=tmp_path / "x") == bundle
    wider = read_config(RunConfig, "smoke", ["model.unet.channels=[24,24]"]).model
    with pytest.raises(ConfigError, match=r"another 'unet\.channels'"):
        start_for(bundle, wider, folder=tmp_path / "y")


def test_without_anatomy_no_trained_parameter_lets_the_scan_reach_a_decoder():
    config = read_config(RunConfig, "smoke")
    work = AblatedMethod("no-anatomy").prepare(config, 2, start=None)
    moving = {name for part in work.parts for name in part.moving}
    assert any("decoder" in name for name in moving)
    assert not any("conditioner" in name or ".film." in name for name in moving)
    with torch.no_grad():  # whatever the moving parameters become
        for part in work.parts:
            for parameter in part.moving.values():
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    model = work.model.eval()
    latents = torch.randn(1, 6, 4, 4, 4, 4, generator=torch.Generator().manual_seed(2))
    random = torch.Generator().manual_seed(3)
    widths = config.model.autoencoder.conditioner_channels
    scans = [
        [
            torch.randn(1, 1, width, 16 >> level, 16 >> level, 16 >> level, generator=random)
            for level, width in enumerate(widths)
        ]
        for _ in range(2)
    ]
    one, other = (model.autoencoder.decoder(latents, scan) for scan in scans)
    assert torch.equal(one, other)
    whole = AblatedMethod("").prepare(config, 2, start=None)
    assert any(".film." in name for part in whole.parts for name in part.moving)


def test_without_pretraining_the_whole_u_net_learns_with_components_joined(make_bundle):
    config = read_config(RunConfig, "smoke")
    work = AblatedMethod("no-pretrain").prepare(config, 5, start=make_bundle(1))
    moving = {name for part in work.parts for name in part.moving}
    assert moving >= {name for name, _ in work.model.named_parameters() if name.startswith("unet.")}
    assert work.joint[1] == "gated"
    assert work.outline.sets_latent_scale


def test_no_anatomy_with_an_expectation_is_refused():
    config = read_config(RunConfig, "base")
    with pytest.raises(ConfigError, match="an expectation tells the decoders of the scan"):
        AblatedMethod("no-anatomy").prepare(config, 1, start=None)


@pytest.mark.slow
def test_one_command_trains_measures_and_tabulates_and_the_next_goes_on(scans, tmp_path):
    study = {
        "groups": {"real": {"scans": [str(path) for path in scans[:1]]}},
        "methods": {
            "ade": {"analytic": "ade"},
            "superdti": {"bundle": "run:superdti", "samples": 4},
            "unet": {"bundle": "run:unet"},
        },
        "comparisons": {"equal": {"title": "equal", "ours": "superdti", "methods": ["ade", "unet"]}},
        "training": {
            "size": "smoke",
            "runs": {
                "superdti": {"method": "superdti", "minutes": {1: 0.01}},
                "unet": {"method": "unet", "changes": ["stages.1.steps=1", "stages.2.steps=1"]},
            },
        },
        "keep_tensors": 0,
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    words = ["tables", "train", "--config", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "out")]

    def call(*more: str):
        return CliRunner().invoke(app, [*words, "--device", "cpu", *more], catch_exceptions=False)

    planned = call("--check")
    assert "2 runs, 0.01 minutes of steps" in planned.output
    assert not (tmp_path / "out").exists()
    first = call("--only", "superdti")
    assert first.exit_code == 0, first.output
    assert "unet is left out of the tables: it is not trained yet." in first.output
    stages = tmp_path / "out" / "runs" / "superdti" / "stage1"
    assert {path.name for path in stages.iterdir()} == {"bundle", "stage.json"}  # nothing large is left behind
    second = call()
    assert second.exit_code == 0, second.output
    assert "superdti: trained (before)" in second.output
    table = (tmp_path / "out" / "tables" / "table02-components-equal-real.md").read_text()
    assert "superdti: 0.01 minutes of training; Stage 1:" in table
    assert "| unet |" in table


class _Killed(BaseProcess):
    """A process that was killed, as far as one can tell from outside."""

    def __init__(self) -> None:
        """Nothing is started."""

    exitcode = -signal.SIGKILL

    def join(self, timeout: float | None = None) -> None:
        """It has ended."""


def test_a_run_that_is_killed_while_it_answers_is_noted_and_the_others_go_on(tmp_path):
    receiver, sender = os.pipe()
    os.write(sender, b"\0\0\0\x40half")  # 64 bytes are said to follow
    os.close(sender)
    job = side_by_side.Job(_Killed(), Connection(receiver, writable=False), 0)
    ended = side_by_side._finish("unet", job, TrainingLog.of(tmp_path))
    assert (ended.end, "killed" in ended.words) == ("failed", True)
