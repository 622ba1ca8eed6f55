"""A study's kept tensors in the table of tracts: who is measured by what, and what is said of what is absent."""

import shutil
from multiprocessing import Pipe

import numpy as np
import pytest

from tensorldm.config.reading import dump_config
from tensorldm.errors import ConfigError, DataError
from tensorldm.evaluation.summary import describe_anatomies
from tensorldm.evaluation.table import methods_of
from tensorldm.evaluation.tract_masks import MaskSource
from tensorldm.evaluation.tracts import TractPlan, evaluate_tracts
from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.parts import Results
from tensorldm.experiments.tables.stored import StoredStudy
from tensorldm.experiments.tract_study import find_kept
from tensorldm.experiments.tracts import TractTask, compare_tracts
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, sidecar_path, write_tensor
from tensorldm.imaging.volume import Space
from tensorldm.tracts.settings import TrackSettings
from tensorldm.work import crew

SPACE = Space((40, 20, 16), np.array([[-2.0, 0, 0, 39], [0, 2, 0, -19], [0, 0, 2, -15], [0, 0, 0, 1]]))
TUBE = (slice(4, 36), slice(7, 13), slice(5, 11))
REFERENCE = [1.7e-3, 3e-4, 3e-4]
METHODS = {"round": [1.3e-3, 4e-4, 4e-4], "w/o CCA": [1.2e-3, 4e-4, 5e-4], "across": [3e-4, 1.7e-3, 3e-4]}
SUBJECTS = {("virtual", "900001"): "head A", ("virtual", "900002"): "head A", ("warped", "900001"): "head B"}
PLAN = TractPlan(TrackSettings(seeds=80), engine="dipy", workers=1)
STUDY = StudyConfig.model_validate({
    "groups": {
        "virtual": {"virtual": {"subjects": 3}},
        "warped": {"virtual": {"subjects": 1, "source": "templates:somewhere"}},
        "real": {"scans": ["somewhere.nii.gz"]},
    },
    "methods": {name: {"analytic": "ade"} for name in METHODS},
    "comparisons": {"equal": {"title": "equal", "ours": "round", "methods": ["across"]}},
})  # fmt: skip


def put_mask(path):
    mask = np.zeros(SPACE.shape, dtype=bool)
    mask[TUBE] = True
    write_mask(path, mask, space=SPACE)


def put(path, diagonal, origin):
    packed = np.zeros((*SPACE.shape, 6), dtype=np.float32)
    packed[TUBE] = [*diagonal, 0, 0, 0]
    write_tensor(path, packed, space=SPACE, notes=origin.notes_for(path))


def put_subject(results, group, name, anatomy):
    folder = results.work(group, name)
    put_mask(folder / "mask.nii.gz")
    put(folder / "reference-ols-0123.nii.gz", REFERENCE, Provenance("ols", name, anatomy=anatomy))
    for number, (method, diagonal) in enumerate(METHODS.items()):
        put(folder / f"method{number}-4567.nii.gz", diagonal, Provenance(method, name, anatomy=anatomy))


@pytest.fixture
def results(tmp_path):
    """A study of three virtual subjects on two heads, and of a real scan; one method of one subject was not kept."""
    results = Results(tmp_path / "study")
    for (group, name), anatomy in SUBJECTS.items():
        put_subject(results, group, name, anatomy)
        put_mask(results.root / "cohorts" / group / "truth" / name / "bundles" / "CST_right.nii.gz")
    put_subject(results, "real", "scan", "a person")
    lost = results.work("virtual", "900002") / "method1-4567.nii.gz"
    lost.unlink()
    sidecar_path(lost).unlink()
    (results.root / "study.yaml").write_text(dump_config(STUDY))
    return results


def find(results, out, *names, most=None):
    stored = StoredStudy.open(results.root)
    return find_kept(stored.study, stored.results, out, names=names, most=most)


def test_kept_tensors_have_the_figures_of_evaluating_them_directly_and_no_tensor_is_made(results, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in results.root.rglob("*")}
    chosen = find(results, tmp_path / "out")
    outcomes = compare_tracts(chosen.subjects, TractTask(PLAN, lambda *_: None), crew=crew.Crew(1), tell=lambda _: None)
    assert not any(outcome.problem for outcome in outcomes)
    rows = [row for outcome in outcomes for row in outcome.rows]
    folder = results.work("virtual", "900001")
    direct = evaluate_tracts(
        folder / "reference-ols-0123.nii.gz",
        [folder / f"method{number}-4567.nii.gz" for number in range(3)],
        bundles=MaskSource(results.root / "cohorts" / "virtual" / "truth" / "900001" / "bundles"),
        out=tmp_path / "direct",
        plan=PLAN,
        mask=folder / "mask.nii.gz",
        subject="virtual-900001",
        tell=lambda _: None,
    )
    assert [repr(row) for row in rows if row.subject == "virtual-900001"] == [repr(row) for row in direct.rows]
    assert methods_of(rows) == ["reference", "reference again", *METHODS]
    assert describe_anatomies(rows) == "3 subjects of 2 independent anatomies"
    assert {row.subject for row in rows if row.method == "w/o CCA"} == {"virtual-900001", "warped-900001"}
    assert not list((tmp_path / "out").rglob("*.nii.gz"))
    assert {path: path.stat().st_mtime_ns for path in results.root.rglob("*")} == before


def test_a_bug_in_one_subject_leaves_its_traceback_and_the_others_are_measured(results, tmp_path):
    def draw(folder, result):
        if folder.name == "virtual-900001":
            raise ZeroDivisionError("a bug")

    chosen = find(results, tmp_path / "out", "round")
    first, *others = compare_tracts(chosen.subjects, TractTask(PLAN, draw), crew=crew.Crew(1), tell=lambda _: None)
    assert first.problem.startswith("virtual-900001: ")
    assert "unexpected ZeroDivisionError" in first.problem
    assert "a bug" in (tmp_path / "out" / "virtual-900001" / "error.txt").read_text()
    assert all(outcome.rows and not outcome.problem for outcome in others)


def test_subjects_can_travel_to_workers(results, tmp_path):
    (subject, *_) = find(results, tmp_path / "out").subjects
    here, away = Pipe()
    here.send(subject)
    there = away.recv()
    assert methods_kept(there) == methods_kept(subject)
    assert (there.name, there.bundles, there.folder) == (subject.name, subject.bundles, subject.folder)


def test_subjects_are_named_by_group_and_methods_are_the_studys_in_its_order(results, tmp_path):
    chosen = find(results, tmp_path / "out")
    assert [each.name for each in chosen.subjects] == ["virtual-900001", "virtual-900002", "warped-900001"]
    assert [list(methods_kept(each)) for each in chosen.subjects] == [[*METHODS], ["round", "across"], [*METHODS]]
    assert chosen.remarks == ("w/o CCA: no tensor was kept of virtual-900002",)
    first = find(results, tmp_path / "out", most=1)
    assert [each.name for each in first.subjects] == ["virtual-900001", "warped-900001"]
    assert first.remarks == ()


def methods_kept(subject):
    return subject.tensors(lambda _: None).methods


def test_methods_that_are_named_are_measured_and_nothing_is_said_of_others(results, tmp_path):
    chosen = find(results, tmp_path / "out", "across", "round", "across")
    assert [list(methods_kept(each)) for each in chosen.subjects] == [["across", "round"]] * 3
    assert chosen.remarks == ()
    other = find(results, tmp_path / "out", "w/o CCA")
    assert [each.name for each in other.subjects] == ["virtual-900001", "warped-900001"]


def test_a_method_that_was_kept_nowhere_and_a_subject_without_masks_are_told(results, tmp_path):
    for path in results.root.rglob("method1-*"):
        path.unlink()
    shutil.rmtree(results.root / "cohorts" / "warped")
    assert find(results, tmp_path / "out").remarks == (
        "left out for want of bundle masks: warped-900001",
        "w/o CCA: no tensor was kept of any of these subjects",
    )


def test_a_study_without_kept_tensors_of_virtual_subjects_says_where_they_come_from(results, tmp_path):
    for path in results.root.rglob("method1-*"):
        path.unlink()
    with pytest.raises(DataError, match=r"work: no virtual subject has kept tensors of w/o CCA\. Bring this folder"):
        find(results, tmp_path / "out", "w/o CCA")
    for group in ("virtual", "warped"):
        shutil.rmtree(results.root / "work" / group)
    with pytest.raises(DataError, match=r"of round, w/o CCA, across\. Bring .* with --set keep_tensors=2 or more\."):
        find(results, tmp_path / "out")


def test_a_study_without_bundle_masks_says_what_to_bring(results, tmp_path):
    shutil.rmtree(results.root / "cohorts")
    with pytest.raises(
        DataError, match=r"truth/900001/bundles: no bundle masks, .* Bring '.*study/cohorts' from where"
    ):
        find(results, tmp_path / "out")


def test_a_method_that_the_study_has_not_is_told_with_those_that_it_has(results, tmp_path):
    with pytest.raises(ConfigError, match=r"--method ade: not in the study .*\. Give one of round, w/o CCA, across\."):
        find(results, tmp_path / "out", "ade")


def test_a_method_that_is_called_as_the_noise_floor_is_refused(results, tmp_path):
    settings = (results.root / "study.yaml").read_text().replace("across", "reference again")
    (results.root / "study.yaml").write_text(settings)
    with pytest.raises(ConfigError, match=r"'reference again', which is the noise floor's name here"):
        find(results, tmp_path / "out")
    assert len(find(results, tmp_path / "out", "round").subjects) == 3


@pytest.mark.parametrize("out", [".", "study", "study/tracts"])
def test_nothing_is_written_into_the_studys_folder_nor_around_it(results, tmp_path, out):
    with pytest.raises(ConfigError, match=r"not apart from the study"):
        find(results, tmp_path / out)
