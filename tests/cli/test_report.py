"""``tensorldm report`` and the page that ``reconstruct`` leaves, as a user calls them."""

import builtins
import json
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
_shared = runpy.run_path(str(Path(__file__).parents[1] / "integration" / "prepare" / "conftest.py"))
clean, program = _shared["scan"], _shared["program"]


@pytest.fixture
def scan(clean):
    return replace(clean, data=clean.data + np.random.default_rng(2).normal(scale=4, size=clean.data.shape))


@pytest.fixture
def hcp(scan, tmp_path) -> Path:
    return scan.write_hcp(tmp_path / "subject") / "T1w" / "Diffusion" / "data.nii.gz"


@pytest.fixture
def out(hcp, tmp_path, program) -> Path:
    assert program("reconstruct", hcp, "-o", tmp_path / "out", "--method", "minimum-norm").code == 0
    return tmp_path / "out"


def test_a_reconstruction_ends_with_its_page_which_names_the_volumes_and_the_inputs(out):
    text = (out / "report.html").read_text()
    note = json.loads((out / "tensor.json").read_text())
    assert len(note["GradientTable"]) == 13
    assert text.count("<figure") == 13
    assert note["Inputs"]["data.nii.gz"] in text
    for volume in (1, 3, 8):
        assert f"volume {volume}, used" in text
    assert str(out.parent) not in text, "a page says nothing of the machine it was made on"


def test_the_page_can_be_made_again_from_the_files_alone_and_is_the_same(out, program):
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    answer = program("report", out)
    assert answer.code == 0, answer.err
    assert "report.html is written" in answer.out
    assert (out / "report.html").read_bytes() == before


def test_bids_results_get_a_page_of_a_bids_name(scan, tmp_path, program):
    scan.write_bids(tmp_path / "raw", "01", "2")
    assert program("reconstruct", tmp_path / "raw", "-o", tmp_path / "out", "--method", "ade").code == 0
    (page,) = (tmp_path / "out").rglob("*.html")
    assert page.name == "sub-01_ses-2_space-orig_desc-report_dwimap.html"
    before = page.read_bytes()
    assert program("report", page.parent).code == 0
    assert page.read_bytes() == before


def test_a_new_result_without_a_page_does_not_keep_the_old_one(out, hcp, program, monkeypatch):
    real_import = builtins.__import__

    def no_matplotlib(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", no_matplotlib)
    answer = program("reconstruct", hcp, "-o", out, "--method", "ade")
    assert answer.code == 0, answer.err
    assert " ".join(answer.out.split()).count("pip install 'tensorldm[report]'") == 1
    assert not (out / "report.html").exists()


def test_methods_are_compared_by_folder_or_file(out, hcp, tmp_path, program):
    program("reconstruct", hcp, "-o", tmp_path / "full", "--method", "minimum-norm", "--directions", "all")
    program("reconstruct", hcp, "-o", tmp_path / "ade", "--method", "ade")
    page = tmp_path / "pages" / "compare.html"
    answer = program("report", "--compare", tmp_path / "full", out / "tensor.nii.gz", tmp_path / "ade", "-o", page)
    assert answer.code == 0, answer.err
    text = page.read_text()
    assert "minimum-norm, ade, against the reference" in text
    assert text.count('<section id="D') == 6


def test_a_cohort_becomes_one_table_with_links_and_an_unreadable_one_gives_exit_code_1(out, tmp_path, program):
    page = tmp_path / "cohort.html"
    assert program("report", "--cohort", tmp_path / "out", "-o", page).code == 0
    assert 'href="out/report.html"' in page.read_text()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "tensor.nii.gz").write_bytes(b"no image")
    answer = program("report", "--cohort", tmp_path, "-o", page)
    assert answer.code == 1
    assert "bad/tensor.nii.gz" in answer.err
    assert "Could not be read" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "there is no such file or folder"),
        (["{empty}"], "no tensor image"),
        (["{out}", "{out}"], "--cohort for a table of all"),
        (["--compare", "{out}"], "give the reference first"),
        (["--compare", "--cohort", "{out}"], "give one of the two"),
        (["--cohort", "{empty}"], "no reconstruction in or below it"),
        (["{out}", "--mask", "mask.nii.gz"], "belong to --compare"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(arguments, words, tmp_path, program):
    (tmp_path / "empty").mkdir()
    filled = [each.format(out=tmp_path, empty=tmp_path / "empty") for each in arguments]
    answer = program("report", *filled, "-o", tmp_path / "page.html")
    assert answer.code == 2
    assert answer.err.startswith("error: ")
    assert words in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "page.html").exists()
