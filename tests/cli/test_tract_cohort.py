"""``tensorldm evaluate --tracts`` with folders: many subjects and methods into the one table, and on again."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.cli.tract_drawing import draw_quietly
from tensorldm.evaluation.cohort import find_cases
from tensorldm.evaluation.table import read_table
from tensorldm.evaluation.tract_cohort import TractCohortTask, evaluate_tract_cases
from tensorldm.evaluation.tract_masks import MaskSource
from tensorldm.evaluation.tract_measures import CORE, STREAMLINES
from tensorldm.evaluation.tracts import NOISE_FLOOR, TractPlan
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.imaging.volume import Space
from tensorldm.tracts.settings import TrackSettings
from tensorldm.work import crew

UNITS = Path(__file__).parents[1] / "unit" / "tracts"
pretend = runpy.run_path(str(UNITS / "test_tractseg.py"))["pretend"]
SPACE = Space((40, 20, 16), np.array([[-2.0, 0, 0, 39], [0, 2, 0, -19], [0, 0, 2, -15], [0, 0, 0, 1]]))
TUBE = (slice(4, 36), slice(7, 13), slice(5, 11))
METHODS = {"all": [1.7e-3, 3e-4, 3e-4], "weak": [1.2e-3, 4e-4, 4e-4], "across": [3e-4, 1.7e-3, 3e-4]}
FEW = ("--engine", "dipy", "--seeds", "120", "--workers", "1")


def call(*words):
    """Exit code, standard output and error."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def put(path, diagonal, subject):
    packed = np.zeros((*SPACE.shape, 6), dtype=np.float32)
    packed[TUBE] = [*diagonal, 0, 0, 0]
    origin = Provenance(path.parents[1].name, subject, path.with_name("mask.nii.gz"), anatomy=f"head of {subject}")
    write_tensor(path, packed, space=SPACE, notes=origin.notes_for(path))


def put_mask(path):
    mask = np.zeros(SPACE.shape, dtype=bool)
    mask[TUBE] = True
    write_mask(path, mask, space=SPACE)


@pytest.fixture
def cohort(tmp_path):
    """Two subjects, a reference and two methods; masks in a folder for each subject."""
    for subject in ("sub-1", "sub-2"):
        for method, diagonal in METHODS.items():
            put(tmp_path / method / subject / "tensor.nii.gz", diagonal, subject)
            put_mask(tmp_path / method / subject / "mask.nii.gz")
        put_mask(tmp_path / "masks" / subject / "CST_right.nii.gz")
    return tmp_path


def evaluate(cohort, *options, masks=None):
    folders = [cohort / method for method in METHODS]
    tracts = ("--tracts", masks or cohort / "masks")
    return call("evaluate", *folders, "--out", cohort / "table.csv", *FEW, *tracts, *options)


def tracked(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.tck")}


def test_every_subject_and_method_is_in_the_one_table_and_measured_once(cohort):
    answer = evaluate(cohort)
    assert answer.exit_code == 0, answer.output
    rows = read_table(cohort / "table.csv")
    counts = {(row.subject, row.method): row.value for row in rows if row.metric == STREAMLINES}
    assert set(counts) == {(s, m) for s in ("sub-1", "sub-2") for m in ("reference", NOISE_FLOOR, "weak", "across")}
    assert all(count > 10 for (_, method), count in counts.items() if method != "across")
    assert {count for (_, method), count in counts.items() if method == "across"} == {0}
    assert {row.subject for row in rows if row.metric == "lem" and row.method == "weak"} == {"sub-1", "sub-2"}
    assert {row.anatomy for row in rows if row.metric == CORE} == {"head of sub-1", "head of sub-2"}
    assert "mean of 2 subjects" in " ".join(answer.output.split())
    out = cohort / "table_tracts"
    assert (out / "core_distance.png").is_file()
    assert {path.name for path in (out / "sub-2").glob("*.png")} == {"core_distance.png", "CST_right.png"}
    first, times = (cohort / "table.csv").read_bytes(), tracked(out / "sub-1")
    again = evaluate(cohort)
    assert "2 of 2 subjects' bundles were measured before" in again.output
    assert (cohort / "table.csv").read_bytes() == first
    assert tracked(out / "sub-1") == times
    half = np.zeros(SPACE.shape, dtype=bool)
    half[4:20, 7:13, 5:11] = True
    write_mask(cohort / "masks" / "sub-1" / "CST_right.nii.gz", half, space=SPACE)
    changed = evaluate(cohort)  # one subject's mask: it alone is measured again, from the same tractograms
    assert "1 of 2 subjects' bundles were measured before" in changed.output
    rows = read_table(cohort / "table.csv")
    new = {(row.subject, row.method): row.value for row in rows if row.metric == STREAMLINES}
    assert new["sub-2", "weak"] == counts["sub-2", "weak"]
    assert new["sub-1", "weak"] != counts["sub-1", "weak"]
    assert tracked(out / "sub-1") == times


def test_a_method_that_calls_itself_the_reference_takes_nobodys_place(cohort):
    for subject in ("sub-1", "sub-2"):
        sidecar = cohort / "across" / subject / "tensor.json"
        sidecar.write_text(sidecar.read_text().replace('"across"', '"reference"'))
    answer = evaluate(cohort)
    assert answer.exit_code == 0, answer.output
    counts = {row.method: row.value for row in read_table(cohort / "table.csv") if row.metric == STREAMLINES}
    assert set(counts) == {"reference", NOISE_FLOOR, "weak", "across"}
    assert counts["across"] == 0 < counts["reference"]
    (cohort / "across").rename(cohort / "reference")
    folders = [cohort / name for name in ("all", "weak", "reference")]
    answer = CliRunner().invoke(app, ["evaluate", *map(str, folders), "--out", str(cohort / "t.csv")])
    assert "both be called 'reference'" in str(answer.exception)


def test_a_subject_without_masks_is_named_and_stops_nobody(cohort):
    (cohort / "masks" / "sub-1" / "CST_right.nii.gz").unlink()
    answer = evaluate(cohort)
    assert answer.exit_code == 1
    assert "sub-1: " in answer.stderr
    assert "no bundle masks of sub-1" in answer.stderr
    rows = read_table(cohort / "table.csv")
    assert {row.subject for row in rows if row.metric == CORE} == {"sub-2"}
    assert {row.subject for row in rows if row.metric == "lem"} == {"sub-1", "sub-2"}


def test_two_workers_give_the_rows_and_tractograms_of_one_and_another_seed_is_another_measurement(cohort, monkeypatch):
    monkeypatch.setattr(crew, "has_dask", lambda: False)  # a plain pool starts faster
    cases = find_cases(cohort / "all", [cohort / "weak"]).cases
    found = {}
    for workers in (1, 2):
        task = a_task(cohort, cohort / f"of {workers}")
        found[workers] = list(evaluate_tract_cases(cases, task, crew=crew.Crew(workers)))
    rows = {workers: {each.subject: repr(each.rows) for each in outcomes} for workers, outcomes in found.items()}
    assert rows[1] == rows[2]
    assert not any(each.problem for each in found[2])
    one, two = (cohort / f"of {workers}" / "sub-2" / "weak.tck" for workers in (1, 2))
    assert one.read_bytes() == two.read_bytes()
    assert a_task(cohort, cohort / "of 2").kept(cases[0]) is not None
    assert a_task(cohort, cohort / "of 2", seed=1).kept(cases[0]) is None


def a_task(cohort, out, seed=0):
    plan = TractPlan(TrackSettings(seeds=120, seed=seed), engine="dipy", workers=2)
    return TractCohortTask(MaskSource(cohort / "masks"), out, plan, None, draw_quietly, "DIPY")


def test_tractseg_makes_the_masks_of_every_subject_once(cohort, pretend, monkeypatch):
    log = pretend()
    monkeypatch.chdir(cohort)
    answer = evaluate(cohort, "--bundle", "CST_left", masks="tractseg")
    assert answer.exit_code == 0, answer.output
    asked = [line for line in log.read_text().splitlines() if line != "--version"]
    assert len(asked) == 4  # tracts and endings of two subjects, whatever the number of methods
    counts = [
        row.value for row in read_table(cohort / "table.csv") if (row.metric, row.method) == (STREAMLINES, "weak")
    ]
    assert len(counts) == 2
    assert min(counts) > 0
    assert (cohort / "table_tracts" / "sub-1" / "tractseg" / "bundle_segmentations" / "CST_left.nii.gz").is_file()
    assert "2 of 2" in evaluate(cohort, "--bundle", "CST_left", masks="tractseg").output
    assert len([line for line in log.read_text().splitlines() if line != "--version"]) == 4


def test_track_starts_tractseg_for_one_tensor(cohort, pretend, monkeypatch):
    pretend()
    monkeypatch.chdir(cohort)
    tensor = cohort / "all" / "sub-1" / "tensor.nii.gz"
    said = call("track", tensor, "--out", cohort / "tracts", *FEW, "--bundles", "tractseg", "--bundle", "CST_left")
    assert said.exit_code == 0, said.output
    assert "CST_left" in said.output
    assert (cohort / "tracts" / "tractseg" / "endings_segmentations" / "CST_left_b.nii.gz").is_file()
