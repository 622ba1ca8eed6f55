"""A whole study with closed forms and untrained models: what it writes, and that it goes on where it was stopped."""

import json
import time

import numpy as np
import pytest
import torch

from tensorldm.errors import DataError
from tensorldm.evaluation.evaluate import evaluate_files
from tensorldm.evaluation.rendering import to_latex
from tensorldm.evaluation.table import read_table
from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.kept import kept_subjects
from tensorldm.experiments.parts import Results
from tensorldm.experiments.record import record_run
from tensorldm.experiments.study import run_study
from tensorldm.experiments.tables.making import build_tables, to_document
from tensorldm.experiments.tables.stored import StoredStudy
from tensorldm.imaging.nifti import read_volume, write_volume
from tensorldm.imaging.tensor_files import read_provenance
from tensorldm.imaging.volume import Volume
from tensorldm.work.crew import Crew


def settings(scans, bundle, **changes) -> StudyConfig:
    values = {
        "groups": {"real": {"scans": scans}},
        "methods": {
            "ade": {"analytic": "ade"},
            "ols-12": {"analytic": "ols-12"},
            "tensorldm": {"bundle": bundle, "steps": 1},
            "Stage 1+2": {"autoencoder": bundle},
        },
        "comparisons": {
            "equal": {"title": "equal", "ours": "tensorldm", "methods": ["ade", "ols-12"]},
            "curriculum": {"title": "curriculum", "kind": "curriculum", "ours": "Stage 1+2", "methods": ["ade"]},
        },
        "fits": {"fits": ["ols", "wls"], "methods": ["ade"], "subjects": 1},
        "sampling": {"methods": ["tensorldm"], "seeds": 2, "steps": [1], "samplers": ["ddim"], "subjects": 1},
        "runtime": {"methods": ["ade", "tensorldm"], "steps": [2], "devices": ["cpu"], "repeats": 1},
        "probe": {"methods": ["tensorldm"], "subjects": 2},
        "routing": {"methods": ["tensorldm"], "subjects": 2},
        "keep_tensors": 1,
    }
    return StudyConfig.model_validate({**values, **changes})


def run(study: StudyConfig, out, *, heard: list[str] | None = None, workers: int = 1) -> list[str]:
    told: list[str] = [] if heard is None else heard
    record = record_run(["tables", "run"], seed=study.seed)
    return run_study(study, out, device="cpu", record=record, tell=told.append, crew=Crew(workers))


@pytest.fixture(scope="module")
def study(scans, bundle) -> StudyConfig:
    return settings(scans, bundle)


@pytest.fixture(scope="module")
def out(study, tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    assert run(study, out) == []
    return out


def test_every_experiment_has_its_long_table(out):
    names = {path.name for path in out.glob("*.csv")}
    assert names == {f"{name}.real.csv" for name in (
        "accuracy", "fits", "seeds", "steps", "probe", "routing", "runtime"
    )}  # fmt: skip


def test_every_table_can_be_made_from_what_is_stored(out):
    stored = StoredStudy.open(out)
    numbers = {table.number for table in build_tables(stored)}
    assert numbers == {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
    assert all(to_latex(table).isascii() for table in build_tables(stored))
    document = to_document(stored, build_tables(stored))
    for words in ("tensorldm tables run", "Hardware:", "Seed: 0", "torch", "steps: 1"):
        assert words in document


def test_figures_are_those_of_evaluate_on_the_kept_files(out, study):
    (kept,) = kept_subjects(study, Results(out))
    expected = evaluate_files(kept.reference, [kept.tensors["ade"]], mask=kept.mask)
    stored = {(row.method, row.quantity, row.metric): row.value for row in read_table(out / "accuracy.real.csv")
              if row.subject == kept.name}  # fmt: skip
    for row in expected:
        assert stored[row.method, row.quantity, row.metric] == pytest.approx(row.value, rel=1e-6, nan_ok=True)


def test_the_models_tensor_is_its_own_and_not_projected(out):
    rows = read_table(out / "accuracy.real.csv")
    violations = [row.value for row in rows if (row.method, row.metric) == ("tensorldm", "spd_violations_percent")]
    assert max(violations) > 0


def test_seeds_differ_and_nothing_else_does(out):
    rows = read_table(out / "seeds.real.csv")
    lem = {row.method: row.value for row in rows if row.metric == "lem"}
    assert lem["tensorldm@seed=0"] != lem["tensorldm@seed=1"]
    accuracy = read_table(out / "accuracy.real.csv")
    (same,) = [row.value for row in accuracy if (row.method, row.subject, row.metric) == ("tensorldm", "head0", "lem")]
    assert lem["tensorldm@seed=0"] == same


def test_another_fit_moves_the_figures(out):
    rows = {row.method: row.value for row in read_table(out / "fits.real.csv") if row.metric == "lem"}
    assert rows["ade@reference=ols"] != rows["ade@reference=wls"]
    assert 0 < rows["wls@reference=ols"] < rows["ade@reference=ols"]


def test_only_the_tensors_for_figures_are_kept_and_they_tell_what_they_saw(out, study):
    first, second = (sorted((out / "work" / "real" / name).glob("[!rm]*.nii.gz")) for name in ("head0", "head1"))
    assert second == []
    known = {read_provenance(path).method: read_provenance(path) for path in first}
    assert set(known) >= {"ade", "ols-12", "tensorldm", "Stage 1+2"}
    assert len(known["tensorldm"].volumes or ()) == 4
    assert len(known["ols-12"].volumes or ()) == 13


def test_the_same_command_again_reads_no_series_and_changes_no_figure(out, study):
    tables = {path: path.read_bytes() for path in out.glob("*.csv")}
    heard: list[str] = []
    start = time.perf_counter()
    run(study, out, heard=heard)
    assert time.perf_counter() - start < 5
    assert not any("reading" in words for words in heard)
    assert {path: path.read_bytes() for path in out.glob("*.csv")} == tables


def test_a_stopped_study_goes_on_and_ends_with_the_same_figures(study, out, tmp_path, monkeypatch):
    """Stopped in the middle of writing a tensor: what was finished is not done again."""
    from tensorldm.experiments import measuring

    part = study.model_copy(update=dict.fromkeys(("fits", "sampling", "runtime", "probe", "routing")))
    write, made = measuring.write_method, []

    def stopped(loaded, config, path, **more):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(more["label"])
        write(loaded, config, path, **more)

    monkeypatch.setattr(measuring, "write_method", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(part, tmp_path)
    assert not (tmp_path / "run.json").exists()
    monkeypatch.setattr(measuring, "write_method", lambda *a, **more: (made.append(more["label"]), write(*a, **more)))
    run(part, tmp_path)
    assert made == ["ade", "ols-12", "tensorldm", "ade", "ols-12", "tensorldm"]
    assert (tmp_path / "accuracy.real.csv").read_bytes() == (out / "accuracy.real.csv").read_bytes()


def test_other_settings_of_a_method_are_measured_anew_and_others_kept(scans, tmp_path):
    """Only ade's line is changed to the literal form: minimum-norm is left alone."""

    def closed(form: str) -> StudyConfig:
        methods = {"ade": {"analytic": form}, "m": {"analytic": "minimum-norm"}}
        comparison = {"c": {"title": "c", "ours": "m", "methods": ["ade"]}}
        plain = {"groups": {"real": {"scans": scans[:1]}}, "methods": methods, "comparisons": comparison}
        return StudyConfig.model_validate(plain)

    run(closed("ade"), tmp_path)
    before = {row.method: row.value for row in read_table(tmp_path / "accuracy.real.csv") if row.metric == "lem"}
    heard: list[str] = []
    run(closed("ade-literal"), tmp_path, heard=heard)
    after = {row.method: row.value for row in read_table(tmp_path / "accuracy.real.csv") if row.metric == "lem"}
    assert after["ade"] != before["ade"]
    assert after["m"] == before["m"]
    assert not any(words.endswith(": m") for words in heard)


def test_a_method_that_a_scan_is_too_short_for_is_left_out_with_a_remark(scans, tmp_path):
    from tensorldm.imaging.gradients import read_gradients, write_fsl

    kept = list(range(9))
    volume, gradients = read_volume(scans[0], volumes=kept), read_gradients(scans[0]).select(kept)
    write_volume(tmp_path / "short.nii.gz", volume)
    write_fsl(tmp_path / "short.bval", tmp_path / "short.bvec", gradients=gradients, space=volume.space)
    (tmp_path / "short_mask.nii.gz").write_bytes((scans[0].parent / "mask.nii.gz").read_bytes())
    study = StudyConfig.model_validate({
        "groups": {"real": {"scans": [tmp_path / "short.nii.gz"]}},
        "methods": {"ade": {"analytic": "ade"}, "ols-12": {"analytic": "ols-12"}},
        "comparisons": {"c": {"title": "c", "ours": "ade", "methods": ["ols-12"]}},
    })  # fmt: skip
    (remark,) = run(study, tmp_path / "out")
    assert remark.startswith("short: ols-12 is missing")
    assert json.loads((tmp_path / "out" / "run.json").read_text())["Remarks"] == [remark]
    assert {row.method for row in read_table(tmp_path / "out" / "accuracy.real.csv")} == {"reference", "ade"}


def spoil(path) -> None:
    """A hole of NaN in the middle of the brain."""
    volume = read_volume(path)
    holed = volume.data.copy()
    holed[8:12, 10:14, 7:11] = np.nan
    write_volume(path, Volume(holed, volume.space))


def test_tensors_that_cannot_be_measured_leave_a_remark_and_are_made_anew_by_the_same_command(
    scans, tmp_path, monkeypatch
):
    from tensorldm.experiments import measuring

    write, made = measuring.write_method, []

    def healthy(loaded, config, path, **more):
        made.append(more["label"])
        write(loaded, config, path, **more)

    def failing(loaded, config, path, **more):
        write(loaded, config, path, **more)
        if more["label"] == "minimum-norm":
            spoil(path)
        if more["label"] == "ols-6":
            path.write_bytes(path.read_bytes()[:1000])

    study = StudyConfig.model_validate({
        "groups": {"real": {"scans": scans[:1]}},
        "methods": {name: {"analytic": name} for name in ("minimum-norm", "ade", "ols-6")},
        "comparisons": {"c": {"title": "c", "ours": "ade", "methods": ["minimum-norm", "ols-6"]}},
        "keep_tensors": 1,
    })  # fmt: skip
    monkeypatch.setattr(measuring, "write_method", failing)
    not_finite, unreadable = run(study, tmp_path)
    assert not_finite.startswith("head0: minimum-norm was not measured: ")
    assert "voxels of the mask are NaN" in not_finite
    assert unreadable.startswith("head0: ols-6 was not measured: ")
    first = read_table(tmp_path / "accuracy.real.csv")
    assert {row.method for row in first} == {"reference", "ade"}
    assert set(next(kept_subjects(study, Results(tmp_path))).tensors) == {"ade"}
    monkeypatch.setattr(measuring, "write_method", healthy)
    assert run(study, tmp_path) == []
    assert made == ["minimum-norm", "ols-6"]
    second = read_table(tmp_path / "accuracy.real.csv")
    assert {row.method for row in second} == {"reference", *study.methods}
    assert [row for row in second if row.method == "ade"] == [row for row in first if row.method == "ade"]


def test_a_reference_that_cannot_be_measured_against_is_said_once_and_other_subjects_go_on(
    study, tmp_path, monkeypatch
):
    from tensorldm.experiments import measuring

    write = measuring.write_reference

    def failing(loaded, fit, path):
        write(loaded, fit, path)
        if loaded.subject.name == "head0":
            spoil(path)

    monkeypatch.setattr(measuring, "write_reference", failing)
    (remark,) = run(study.model_copy(update=dict.fromkeys(("fits", "sampling", "runtime", "probe"))), tmp_path)
    assert remark.startswith("head0: nothing is measured against OLS: ")
    for experiment in ("accuracy", "routing"):  # what a model holds is looked at beside the reference
        assert {row.subject for row in read_table(tmp_path / f"{experiment}.real.csv")} == {"head1"}


def test_a_bug_in_what_comes_after_measuring_leaves_a_remark_and_the_study_is_finished(study, tmp_path, monkeypatch):
    """A GPU that is full when seconds are measured must not cost the tables of everything else."""
    from tensorldm.experiments import model_studies, runtime

    def full(*_, **__):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(runtime, "time_method", full)
    monkeypatch.setattr(model_studies, "routing", full)
    nothing = dict.fromkeys(("fits", "sampling"))
    remarks = run(study.model_copy(update=nothing), tmp_path)
    assert [words.partition(": ")[0] for words in remarks] == [
        "real, routing", "Runtime of ade was not measured", "Runtime of tensorldm@steps=2 was not measured",
    ]  # fmt: skip
    assert "OutOfMemoryError" in (tmp_path / "error.txt").read_text()
    assert json.loads((tmp_path / "run.json").read_text())["Remarks"] == remarks
    assert (tmp_path / "probe.real.csv").is_file()


def test_all_scans_are_checked_before_the_first_is_read(scans, tmp_path):
    study = settings([scans[0], tmp_path / "absent.nii.gz"], tmp_path)
    plain = study.model_copy(update={"methods": {"ade": study.methods["ade"]}})
    with pytest.raises(DataError, match=r"absent\.nii\.gz"):
        run(plain, tmp_path / "out")
    assert not (tmp_path / "out" / "parts").exists()


def test_virtual_subjects_know_their_heads_and_are_measured_against_the_truth_too(tmp_path):
    study = StudyConfig.model_validate({
        "groups": {"virtual": {"grid": "native", "virtual": {"subjects": 2, "changes": [
            "shape=[16, 16, 16]", "voxel_mm=[11, 11, 11]", "protocol.b0s=[1, 1]", "protocol.directions=[12, 12]",
        ]}}},
        "methods": {"ade": {"analytic": "ade"}},
        "comparisons": {"c": {"title": "c", "ours": "ade", "methods": ["ade"]}},
        "fits": {"fits": ["ols"], "methods": ["ade"], "subjects": 1},
    })  # fmt: skip
    run(study, tmp_path)
    rows = read_table(tmp_path / "accuracy.virtual.csv")
    assert {row.subject: row.anatomy for row in rows} == {
        "900001": "procedural/test/0000", "900002": "procedural/test/0001",
    }  # fmt: skip
    fits = {row.method for row in read_table(tmp_path / "fits.virtual.csv")}
    assert fits >= {"ade@reference=ols", "ade@reference=truth", "ols@reference=truth"}


def test_thick_slices_are_resampled_to_2_mm_before_anything_is_fitted(scans, tmp_path):
    from tensorldm.experiments.config import GroupConfig
    from tensorldm.experiments.loading import load
    from tensorldm.experiments.subjects import gather
    from tensorldm.imaging.gradients import read_gradients, write_fsl
    from tensorldm.imaging.nifti import read_mask, write_mask
    from tensorldm.imaging.volume import Space

    volume = read_volume(scans[0])
    space = Space(volume.space.shape, np.diag([-2.0, 2.0, 3.0, 1.0]))
    write_volume(tmp_path / "thick.nii.gz", Volume(volume.data, space))
    write_mask(tmp_path / "thick_mask.nii.gz", read_mask(scans[0].parent / "mask.nii.gz")[0], space=space)
    gradients = read_gradients(scans[0])
    write_fsl(tmp_path / "thick.bval", tmp_path / "thick.bvec", gradients=gradients, space=space)
    group = GroupConfig(scans=(tmp_path / "thick.nii.gz",))
    (subject,) = gather("real", group, results=Results(tmp_path / "out"), seed=0, tell=lambda _: None)
    assert subject.resample
    loaded = load(subject, tmp_path / "work")
    assert loaded.scan.space.voxel_size == pytest.approx((2, 2, 2))
    assert loaded.scan.signal.min() >= 0
    # RAS: the first axis is mirrored, and so are the directions that refer to it.
    assert np.allclose(loaded.scan.gradients.directions[:, 0], -gradients.directions[:, 0])
    again = read_gradients(loaded.files.dwi)
    assert np.allclose(again.directions, loaded.scan.gradients.directions, atol=1e-6)


def test_a_scan_that_cannot_be_used_is_left_out_once_and_the_others_go_on(scans, bundle, tmp_path):
    """Two exchanged axes in the second scan's directions: its fibres do not hang together."""
    import shutil

    bad = shutil.copytree(scans[1].parent, tmp_path / "bad")
    lines = (bad / "dwi.bvec").read_text().splitlines()
    (bad / "dwi.bvec").write_text("\n".join([lines[1], lines[0], lines[2]]) + "\n")
    study = settings([scans[0], bad / "dwi.nii.gz"], bundle, **dict.fromkeys(("fits", "sampling", "runtime", "probe")))
    remarks = run(study, tmp_path / "out")
    assert len([remark for remark in remarks if remark.startswith("bad is left out")]) == 1
    for experiment in ("accuracy", "routing"):
        assert {row.subject for row in read_table(tmp_path / "out" / f"{experiment}.real.csv")} == {"head0"}


def test_a_rivals_bundle_is_a_line_like_any_other(scans, tmp_path):
    """Nobody has trained it: what counts is that it goes through the same door and is timed and measured alike."""
    from tensorldm.baselines.learned.bundles import write_rival
    from tensorldm.baselines.learned.catalogue import build_rival
    from tensorldm.baselines.learned.config import RivalRun
    from tensorldm.bundle import Card
    from tensorldm.config.reading import preset_path, read_config

    config = read_config(RivalRun, preset_path("rivals/unet-smoke")).model
    rival = build_rival(config, name="unet", seed=1)
    write_rival(tmp_path / "unet", rival.state_dict(), rival=rival, config=config, card=Card(title="unet"))
    study = StudyConfig.model_validate({
        "groups": {"real": {"scans": scans[:1]}},
        "methods": {"ade": {"analytic": "ade"}, "unet": {"bundle": tmp_path / "unet"}},
        "comparisons": {"c": {"title": "c", "ours": "unet", "methods": ["ade"]}},
        "runtime": {"methods": ["unet"], "devices": ["cpu"], "repeats": 1},
        "routing": {"methods": ["unet"]},
    })  # fmt: skip
    remarks = run(study, tmp_path / "out")
    assert {row.method for row in read_table(tmp_path / "out" / "accuracy.real.csv")} == {"reference", "ade", "unet"}
    timed = {row.method: row.metric for row in read_table(tmp_path / "out" / "runtime.real.csv")}
    assert set(timed) == {"unet"}  # without steps: it does not draw
    assert [remark for remark in remarks if remark.startswith("real, routing:")]


@pytest.mark.slow
def test_two_workers_give_the_figures_of_one(scans, tmp_path):
    plain = {"groups": {"real": {"scans": scans}}, "methods": {"ade": {"analytic": "ade"}}}
    plain["methods"]["slow"] = {"analytic": "minimum-norm", "subjects": 1}
    plain["comparisons"] = {"c": {"title": "c", "ours": "ade", "methods": ["ade"]}}
    for workers in (1, 2):
        assert run(StudyConfig.model_validate(plain), tmp_path / str(workers), workers=workers) == []
    first, second = ((tmp_path / name / "accuracy.real.csv").read_bytes() for name in ("1", "2"))
    assert first == second
    rows = read_table(tmp_path / "1" / "accuracy.real.csv")
    assert {row.subject for row in rows if row.method == "slow"} == {"head0"}
    assert {row.subject for row in rows if row.method == "ade"} == {"head0", "head1"}


def test_a_second_run_on_the_same_folder_is_refused(study, tmp_path):
    from tensorldm.work.folder import writing_to

    with writing_to(tmp_path / "out"), pytest.raises(DataError, match="out"):
        run(study, tmp_path / "out")


def test_a_fit_whose_package_is_not_here_is_left_out_with_a_remark_and_the_rest_goes_on(study, tmp_path, monkeypatch):
    from tensorldm.experiments import measuring

    write = measuring.write_reference

    def without_dipy(loaded, fit, path):
        if fit == "wls":
            raise ModuleNotFoundError("No module named 'dipy'")
        write(loaded, fit, path)

    monkeypatch.setattr(measuring, "write_reference", without_dipy)
    part = study.model_copy(update=dict.fromkeys(("sampling", "runtime", "probe", "routing")))
    closed = {name: part.methods[name] for name in ("ade", "ols-12")}
    comparison = part.comparisons["equal"].model_copy(update={"ours": "ols-12", "methods": ("ade",)})
    part = part.model_copy(update={"methods": closed, "comparisons": {"equal": comparison}})
    remarks = run(part, tmp_path)
    assert any("nothing is measured against WLS" in remark and "DIPY" in remark for remark in remarks)
    assert {row.method for row in read_table(tmp_path / "fits.real.csv")} >= {"ade@reference=ols"}
    assert {row.method for row in read_table(tmp_path / "accuracy.real.csv")} >= {"ade", "ols-12"}
