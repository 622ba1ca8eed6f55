"""How a study says what it trains, what is refused, and that the shipped comparisons are fair as they stand."""

from pathlib import Path

import pytest

from tensorldm.baselines.learned.catalogue import RIVALS
from tensorldm.config.reading import read_config
from tensorldm.errors import ConfigError, DataError
from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.preparing_runs import _open, check_runs, make_ready, planned_steps
from tensorldm.experiments.recipes import RunReference, TrainingConfig, reference_of
from tensorldm.experiments.trained import with_bundles, without_missing
from tensorldm.experiments.training import describe_budget

STUDY = """
groups: {virtual: {virtual: {subjects: 2}}}
methods:
  ade: {analytic: ade}
  ours: {bundle: "run:full"}
  early: {bundle: "run:full/4"}
  without: {bundle: "run:no-cca"}
  decoded: {autoencoder: "run:full/2"}
comparisons:
  c: {title: t, ours: ours, methods: [ade, without]}
  d: {title: t, kind: curriculum, ours: decoded, methods: [ade]}
sampling: {methods: [ours, without]}
training:
  size: smoke
  time_scale: 2
  runs:
    full: {minutes: {1: 0.5, 2: 1, 4: 2, 5: 1}}
    no-cca: {start: full/4, stages: [5], minutes: {5: 1}, changes: [model.unet_cca=none]}
    unet: {method: unet, minutes: {1: 1, 2: 2}}
"""


@pytest.fixture
def study_file(tmp_path) -> Path:
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path / "study.yaml"


def read(path: Path, *changes: str) -> StudyConfig:
    return read_config(StudyConfig, path, changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("methods.ours.bundle='run:fool'", "methods.ours names the run 'fool', which is not among training.runs"),
        ("methods.ours.bundle='run:full/last'", "after the name of a run comes the number of a stage"),
        ("training.runs.full.start=no-cca/5", "runs.full starts from 'no-cca/5', where NAME/STAGE of an earlier run"),
        ("training.runs.no-cca.start=full", "where NAME/STAGE of an earlier run belongs"),
        ("training.runs.unet.method=unit", "there is no method 'unit'"),
        ("training.runs.unet.variant=no-anatomy", "no-anatomy is an ablation of tensorldm, not of unet"),
        ("training.runs.no-cca.minutes={4: 1}", "minutes are given for a stage that is not trained"),
        ("training.runs.unet.minutes={3: 1}", "unet has no Stage 3; it has 1, 2"),
        ("training.runs.unet.minutes={1: 0}", "minutes are more than 0"),
        ("training.runs.a/b={method: unet}", "'a/b' cannot be the name of a run"),
        ("training=null", "which is not among training.runs"),
    ],
)
def test_a_recipe_that_cannot_be_meant_is_refused_by_name(study_file, change, words):
    with pytest.raises(ConfigError) as caught:
        read(study_file, change)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            "training.runs.no-cca.changes=[model.unet.blocks=2]",
            "another 'unet.blocks' than the run that starts from it",
        ),
        ("training.runs.no-cca.start=full/0", "a stage that full does not train"),
        ("training.runs.no-cca.variant=no-anatomy", "runs.no-cca has no Stage 5"),
        ("training.runs.unet.changes=[stages.1.rate=3]", "Did you mean|there is no setting"),
        ("training.runs.full.stages=[4, 5]", "Stage 4 starts from Stage 1 or 2 or 3"),
        (
            "training.runs.unet.tried=[2]",
            "runs.unet.tried: a trial begins where the run does. Give the first of Stages 1",
        ),
        ("training.runs.full.tried=[0]", "runs.full.tried: .* Give the first of Stages 1, 2, 3, 4, 5"),
        ("training.runs.no-cca.tried=[4, 5]", "runs.no-cca.tried: .* Give the first of Stages 5"),
    ],
)
def test_what_only_a_runs_own_settings_show_is_refused_before_anything_is_trained(study_file, tmp_path, change, words):
    more = ["training.runs.full.minutes={}", "training.runs.unet.minutes={}"] if ".stages=" in change else []
    training = read(study_file, *more, change).training
    with pytest.raises(ConfigError, match=words):
        check_runs(training, tmp_path / "out", seed=0)
    assert not (tmp_path / "out").exists()


def test_a_run_brings_what_it_starts_from_and_nothing_else(study_file):
    training = read(study_file).training
    assert training.needed(["no-cca"]) == ["full", "no-cca"]
    assert training.needed() == ["full", "no-cca", "unet"]
    with pytest.raises(ConfigError, match=r"--only nothing: there is no such run. Give one of full"):
        training.needed(["nothing"])


def test_minutes_count_all_stages_behind_the_weights(study_file):
    training = read(study_file).training
    assert training.minutes("no-cca") == 2 * 1
    assert training.minutes_with_start("no-cca") == 2 * (0.5 + 1 + 2 + 1)
    assert training.minutes_with_start("full", 2) == 2 * 1.5
    assert "3 runs, 17 minutes of steps" in describe_budget(training)[-1]


def test_the_budget_counts_trials_of_the_stages_that_are_tried_alone(study_file):
    trials = ["training.rates=[0.3, 1, 3]", "training.trial_share=0.1"]
    assert "17 minutes of steps, 22.1 with the trials of 3" in describe_budget(read(study_file, *trials).training)[-1]
    less = read(study_file, *trials, "training.runs.full.tried=[1]").training
    assert less.minutes_tried("full") == 2 * 0.5
    assert "17 minutes of steps, 19.7 with the trials of 3" in describe_budget(less)[-1]


def test_minutes_reach_the_stages_and_steps_do_not_end_them_sooner(study_file, tmp_path):
    ready = make_ready(read(study_file).training, "unet", tmp_path, seed=3)
    assert [ready.settings.stages[str(number)].minutes for number in (1, 2)] == [2, 4]
    assert ready.settings.stages["1"].steps > 10**7
    assert ready.settings.seed == 3


def test_methods_find_their_bundles_in_the_studys_own_folder(study_file, tmp_path):
    found = with_bundles(read(study_file, "methods.product={bundle: shipped}"), tmp_path).methods
    assert found["ours"].bundle == tmp_path / "runs" / "full" / "stage5" / "bundle"
    assert found["early"].bundle == tmp_path / "runs" / "full" / "stage4" / "bundle"
    assert found["decoded"].autoencoder == tmp_path / "runs" / "full" / "stage2" / "bundle"
    assert found["product"].bundle.name == "weights"
    assert reference_of(Path("run:full/4")) == RunReference("full", 4)
    assert reference_of(Path("runs/full")) is None


def test_what_is_not_trained_is_left_out_of_the_tables_and_named(study_file, tmp_path):
    study = read(study_file)
    with pytest.raises(DataError, match="nothing to compare yet, ours, early, without, decoded are not trained"):
        without_missing(study, tmp_path)
    for stage in (2, 4, 5):
        folder = tmp_path / "runs" / "full" / f"stage{stage}" / "bundle"
        folder.mkdir(parents=True)
        (folder / "bundle.json").write_text("{}")
    left, missing = without_missing(study, tmp_path)
    assert missing == ["without"]
    assert left.comparisons["c"].methods == ("ade",)
    assert left.sampling.methods == ("ours",)
    assert "without" not in left.methods


def training_of(preset: str) -> TrainingConfig:
    training = read_config(StudyConfig, preset).training
    assert training is not None
    return training


def test_the_equal_comparison_gives_every_method_the_same_minutes_stream_and_samples(tmp_path):
    study = read_config(StudyConfig, "equal")
    training, compared = study.training, study.comparisons["equal"]
    names = [*compared.methods, compared.ours]
    runs = {reference_of(study.methods[name].bundle).name for name in names if study.methods[name].bundle}
    assert {training.runs[run].method for run in runs} == {*RIVALS, "tensorldm"} - {"coupled"}  # an ablation
    assert {round(training.minutes_with_start(run), 9) for run in runs} == {12.0}
    settings = {run: make_ready(training, run, tmp_path, seed=0).settings for run in runs}
    assert len({each.data.model_dump_json() for each in settings.values()}) == 1
    assert len({each.average.model_dump_json() + each.validation.model_dump_json() for each in settings.values()}) == 1
    expectation = settings["tensorldm"].stages["0"]
    regression = settings["unet"].stages  # the sceptic's rival is trained as our own regression is
    for stage in regression.values():
        for setting in ("error", "lem_weight", "optimizer", "weight_decay"):
            assert getattr(stage, setting) == getattr(expectation, setting), setting
    for setting in ("box", "batch_size", "learning_rate"):
        assert getattr(regression["1"], setting) == getattr(expectation, setting), setting
    drawing = {name: study.methods[name] for name in names if name.split()[0] in ("tensorldm", "diffdti", "ldm")}
    for name, method in drawing.items():
        assert (method.samples, method.steps) == ((1 if name.endswith("K=1") else 4), 25)
    assert {f"{name} K=1" for name in ("tensorldm", "diffdti", "ldm")} <= set(drawing)
    assert "product" not in names  # two tables, never mixed
    assert study.groups["virtual"].virtual.subjects >= 40


def test_the_ablations_are_all_there_short_and_share_what_they_can(tmp_path):
    study = read_config(StudyConfig, "ablations")
    training = study.training
    check_runs(training, tmp_path, seed=0)
    # In steps: minutes are of the clock, and variants that train beside others than the full model would have others.
    assert not any(recipe.minutes for recipe in training.runs.values())
    steps = {name: planned_steps(training, name) for name in training.runs}
    full = steps["full"]
    assert {
        "w/o CCA", "w/o MoE", "w/o AE-LEM", "w/o full-volume fine-tuning", "w/o joint AE", "w/o joint LDM",
        "Stage 1+2", "Stage 2 alone", "No-Anatomy", "No-Pretrain", "Channel-Shared",
    } <= set(study.methods)  # fmt: skip
    assert training.runs["no-cca"].start == "full/4"
    assert {name: training.runs[name].start for name in ("full", "stage2-alone")} == dict.fromkeys(
        ("full", "stage2-alone"), "shipped"
    )
    for name in ("no-moe", "no-joint-ae", "no-full-volume", "no-ae-lem", "full-again", "no-moe-again", "no-cca"):
        assert steps[name] == {stage: full[stage] for stage in steps[name]}, name
    assert steps["no-pretrain"] == {5: full[4] + full[5]}
    assert steps["stage2-alone"] == {2: full[1] + full[2]}
    assert steps["no-anatomy"] == {stage: steps["plain"][stage] for stage in (1, 2)}
    assert sum(steps["coupled"].values()) == sum(steps["plain"].values())
    again = [name for name in training.runs if training.runs[name].seed == 1]
    assert again == ["full-again", "no-cca-again", "no-moe-again"]


def test_an_ablation_that_begins_a_part_from_nothing_has_the_rate_of_the_stage_that_usually_does(tmp_path):
    """With the low rate of a stage that refines what is there, it would be the rate that the table tells of."""
    training = training_of("ablations")
    full, alone, unprepared = (
        _open(training, name, tmp_path, seed=0).settings.stages for name in ("full", "stage2-alone", "no-pretrain")
    )
    for stage, usual in ((alone["2"], full["1"]), (unprepared["5"], full["4"])):
        for setting in ("learning_rate", "optimizer", "weight_decay", "decay", "warmup_steps"):
            assert getattr(stage, setting) == getattr(usual, setting), setting


def test_no_ablation_is_told_by_the_mean_of_samples_that_its_variants_share_and_the_captions_say_so():
    study = read_config(StudyConfig, "ablations")
    told = [each for each in study.comparisons.values() if each.kind == "ablations"]
    names = {name for each in told for name in (each.ours, *each.methods)}
    assert len(names) > 10
    # Of a model with an expectation that mean is the expectation, whatever its diffusion has learned.
    assert {study.methods[name].samples for name in names} == {1}
    assert all("single samples" in each.note for each in told)
    equal = read_config(StudyConfig, "equal")
    assert "its expectation" in equal.methods["tensorldm"].note
