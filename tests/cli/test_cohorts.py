"""Whole cohorts through ``reconstruct``, ``prepare``, ``evaluate``, ``track``: workers change nothing but the time."""

import hashlib
import json
import runpy
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tensorldm.cli import reconstruct as verb
from tensorldm.evaluation.table import read_table
from tensorldm.reconstruct import choice, files
from tensorldm.work import processes

HERE = Path(__file__).parents[1]
_shared = runpy.run_path(str(HERE / "integration" / "prepare" / "conftest.py"))
_models = runpy.run_path(str(HERE / "e2e" / "reconstruct" / "conftest.py"))
clean, program = _shared["scan"], _shared["program"]
CLOSED = ("--method", "minimum-norm")


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    monkeypatch.setattr(verb, "draw", None)
    monkeypatch.setattr(verb, "describe", None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def tree(clean, tmp_path):
    for number in range(3):
        noise = np.random.default_rng(number).normal(scale=4, size=clean.data.shape)
        replace(clean, data=clean.data + noise).write_hcp(tmp_path / "tree" / f"{900001 + number}")
    return tmp_path / "tree"


def sums(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and ".tensorldm" not in path.parts
    }


def test_two_workers_give_the_bytes_of_one_with_a_model_that_draws_and_for_every_command(tree, tmp_path, program):
    """One test, since starting workers is what takes the time."""
    bundle = _models["untrained"](tmp_path / "bundle", [])
    options = ("--model", bundle, "--samples", 2, "--steps", 2, "--device", "cpu")
    for name, workers in (("one", 1), ("two", 2)):
        answer = program("reconstruct", tree, "-o", tmp_path / name, *options, "--workers", workers)
        assert answer.code == 0, answer.err
    assert sums(tmp_path / "one") == sums(tmp_path / "two")
    assert program("prepare", tree, "--out", tmp_path / "store one").code == 0
    assert program("prepare", tree, "--out", tmp_path / "store two", "--workers", 2).code == 0
    assert sums(tmp_path / "store one" / "subjects") == sums(tmp_path / "store two" / "subjects")


def test_a_second_call_does_nothing_and_another_recipe_or_input_does_all(tree, tmp_path, program):
    def outcome(*options):
        answer = program("reconstruct", tree, "-o", tmp_path / "out", *options)
        assert answer.code == 0, answer.err
        return answer.out.count(": kept, as it was made before")

    assert outcome(*CLOSED) == 0
    assert outcome(*CLOSED) == 3
    assert outcome(*CLOSED, "--redo") == 0
    assert outcome("--method", "ade") == 0
    assert outcome("--method", "ade", "--convention", "fsl") == 0
    image = tree / "900002" / "T1w" / "Diffusion" / "bvals"
    image.write_text(image.read_text().replace("1010", "1020"))
    assert outcome("--method", "ade", "--convention", "fsl") == 2
    (tmp_path / "out" / "900001" / "fa.nii.gz").write_bytes(b"half a file")
    (tmp_path / "out" / "900003" / "v1.json").unlink()
    assert outcome("--method", "ade", "--convention", "fsl") == 1
    assert (tmp_path / "out" / "900001" / "fa.nii.gz").stat().st_size > 1000
    assert (tmp_path / "out" / "900003" / "v1.json").is_file()


def test_the_model_is_loaded_once_for_all_scans_and_let_go_at_the_end(tree, tmp_path, program, monkeypatch):
    loaded, real = [], choice.Choice.load
    monkeypatch.setattr(choice.Choice, "load", lambda self, *a, **k: loaded.append(self) or real(self, *a, **k))
    assert program("reconstruct", tree, "-o", tmp_path / "out", *CLOSED).code == 0
    assert len(loaded) == 1
    assert processes._kept == []


def test_a_bug_in_one_scan_ends_that_scan_and_keeps_its_traceback(tree, tmp_path, program, monkeypatch):
    real = files.reconstruct_series

    def broken(series, *arguments, **options):
        if not broken.met:
            broken.met.append(1)
            raise ZeroDivisionError("ours")
        return real(series, *arguments, **options)

    broken.met = []
    monkeypatch.setattr(files, "reconstruct_series", broken)
    answer = program("reconstruct", tree, "-o", tmp_path / "out", *CLOSED)
    assert answer.code == 1
    assert "unexpected ZeroDivisionError. This is a bug" in answer.err
    assert "Traceback" in answer.err
    assert len(list((tmp_path / "out").glob("9*"))) == 2


@pytest.fixture
def methods(tree, tmp_path, program):
    """A reference and two methods for three subjects; the second method lacks one."""
    assert program("reconstruct", tree, "-o", tmp_path / "all", *CLOSED, "--directions", "all").code == 0
    assert program("reconstruct", tree, "-o", tmp_path / "norm", *CLOSED).code == 0
    two = [tree / name for name in ("900001", "900003")]
    assert program("reconstruct", *two, "-o", tmp_path / "ade", "--method", "ade").code == 0
    return tmp_path


def test_folders_are_measured_subject_by_subject_and_only_what_is_new(methods, program, monkeypatch):
    call = ("evaluate", methods / "all", methods / "norm", methods / "ade", "--out", methods / "table.csv")
    answer = program(*call, "--workers", 1)
    assert answer.code == 1
    assert f"error: {methods / 'ade'}: no tensor of 900002." in answer.err
    rows = read_table(methods / "table.csv")
    assert {(row.subject, row.method) for row in rows if row.method != "reference"} == {
        *((subject, "minimum-norm") for subject in ("900001", "900002", "900003")),
        *((subject, "ade") for subject in ("900001", "900003")),
    }
    first = (methods / "table.csv").read_bytes()
    answer = program(*call, "--workers", 1)
    assert "3 of 3 subjects were measured before" in answer.out
    assert (methods / "table.csv").read_bytes() == first
    one = methods / "one.csv"
    tensors = [methods / name / "900001" / "tensor.nii.gz" for name in ("all", "norm", "ade")]
    assert program("evaluate", *tensors, "--out", one).code == 0
    alone = {(row.quantity, row.metric): row.value for row in read_table(one) if row.method == "ade"}
    among = {(r.quantity, r.metric): r.value for r in rows if (r.method, r.subject) == ("ade", "900001")}
    assert among == alone


def test_identical_tensors_have_infinite_figures_and_are_remembered_too(methods, program):
    call = ("evaluate", methods / "all", methods / "all", "--out", methods / "same.csv", "--workers", 1)
    assert program(*call).code == 0
    assert any(row.value == float("inf") for row in read_table(methods / "same.csv"))
    first = (methods / "same.csv").read_bytes()
    assert "3 of 3 subjects were measured before" in program(*call).out
    assert (methods / "same.csv").read_bytes() == first


def test_a_subject_that_broke_since_is_named_and_the_others_stay_measured(methods, program):
    call = ("evaluate", methods / "all", methods / "norm", "--out", methods / "table.csv", "--workers", 1)
    assert program(*call).code == 0
    (methods / "all" / "900002" / "mask.nii.gz").unlink()
    answer = program(*call)
    assert (answer.code, "2 of 3 subjects were measured before" in answer.out) == (1, True), answer.err
    assert str(methods / "all" / "900002") in answer.err
    assert {row.subject for row in read_table(methods / "table.csv")} == {"900001", "900003"}


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("tensorldm.evaluation.cohort.evaluate_files", ("evaluate", "all", "norm", "--out", "t.csv")),
        ("tensorldm.evaluation.track_cohort.track_field", ("track", "norm", "-o", "out", "--engine", "dipy")),
    ],
    ids=["evaluate", "track"],
)
def test_a_bug_in_one_subject_keeps_its_traceback_and_the_others_go_on(place, words, methods, program, monkeypatch):
    module, _, name = place.rpartition(".")
    real, calls = getattr(import_module(module), name), []

    def broken(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise ZeroDivisionError("ours")
        return real(*arguments, **options)

    monkeypatch.setattr(place, broken)
    monkeypatch.chdir(methods)
    seeds = ("--seeds", 200) if words[0] == "track" else ()
    answer = program(*words, *seeds, "--workers", 1)
    assert answer.code == 1
    assert len(calls) == 3
    assert "unexpected ZeroDivisionError. This is a bug" in answer.err
    assert "Traceback" in answer.err


def test_folders_that_share_no_subject_or_hold_no_tensor_are_refused(methods, program):
    (methods / "empty").mkdir()
    answer = program("evaluate", methods / "empty", methods / "norm", "--out", methods / "t.csv")
    assert (answer.code, "no tensor image" in answer.err) == (2, True)
    answer = program("evaluate", methods / "all", methods / "empty", "--out", methods / "t.csv")
    assert (answer.code, "no tensor of 900001" in answer.err) == (2, True)
    answer = program("evaluate", methods / "all", methods / "norm", "--out", methods / "t.csv", "--subject", "x")
    assert (answer.code, "belong to one subject" in answer.err) == (2, True)


def test_a_folder_of_tensors_is_tracked_and_a_bad_one_stops_nobody(methods, program):
    broken = methods / "ade" / "900003" / "mask.nii.gz"
    broken.write_bytes(broken.read_bytes()[:100])
    options = ("--engine", "dipy", "--seeds", 200, "--workers", 1)
    answer = program("track", methods / "ade", "-o", methods / "tracts", *options)
    assert answer.code == 1
    assert str(broken) in answer.err
    note = json.loads((methods / "tracts" / "900001" / "tensor.json").read_text())
    assert note["Streamlines"] > 0
    assert (methods / "tracts" / "900001" / "tensor.trx").is_file()
    assert "1 kept, 1 failed" in program("track", methods / "ade", "-o", methods / "tracts", *options).out


def test_tracking_into_the_folder_of_the_tensors_costs_no_tensor_its_sidecar(methods, program):
    sidecar = methods / "ade" / "900001" / "tensor.json"
    before = sidecar.read_text()
    answer = program("track", methods / "ade", "-o", methods / "ade", "--engine", "dipy", "--seeds", 200)
    assert (answer.code, "Choose another folder with --out" in answer.err) == (2, True)
    assert sidecar.read_text() == before
