"""The page of a cohort: everyone in a line, outliers told, links that lead to each one's report."""

import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.tensor_sidecar import sidecar_path
from tensorldm.reconstruct.naming import Naming
from tensorldm.reconstruct.outputs import write_result
from tensorldm.report.cohort_members import gather_members
from tensorldm.report.cohort_page import cohort_page, score, write_cohort_page
from tensorldm.report.method_text import method_text
from tensorldm.report.reading import find_tensor, find_tensors, read_recorded

pytest.importorskip("matplotlib")
silent = lambda _: None  # noqa: E731


@pytest.fixture
def write(result, notes, tmp_path):
    """Write the head as ``reconstruct`` would, its diffusivities times a factor."""

    def call(name: str, factor: float = 1.0, *, entities: str | None = None, method: str = "tensorldm") -> Path:
        naming = Naming(Path(name), entities)
        other = replace(result, tensor=(factor * result.tensor).astype(np.float32), notes={**notes, "Method": method})
        known = {key: notes[key] for key in ("Subject", "Inputs", "GradientTable", "Brain", "Versions")} | {
            "Subject": name
        }
        write_result(other, naming, root=tmp_path, convention="fsl", notes=known, shared={})
        return tmp_path / naming.image("tensor")

    return call


def test_a_reconstruction_comes_back_from_its_files_as_it_was(write, result):
    found = read_recorded(write("anna")).result
    np.testing.assert_allclose(found.tensor, result.tensor, atol=1e-9)
    np.testing.assert_array_equal(found.mask, result.mask)
    assert found.extra.keys() == result.extra.keys()
    for name, image in result.extra.items():
        np.testing.assert_allclose(found.extra[name], image, rtol=1e-6)
    for key in ("volumes", "bvals", "angles_degrees", "warnings", "spd_touched_share"):
        assert getattr(found, key) == getattr(result, key)


def test_bids_names_are_found_too_and_hidden_folders_are_not(write, tmp_path):
    plain, bids = write("anna"), write("sub-02/dwi", entities="sub-02_space-orig")
    write(".unfinished.part")
    assert find_tensors(tmp_path) == sorted([plain, bids])
    assert read_recorded(bids).result.extra.keys() == read_recorded(plain).result.extra.keys()
    assert find_tensor(bids.parent) == bids


def test_a_head_unlike_the_others_is_named_and_marked(write, tmp_path, read_page):
    for name, factor in zip("abcdef", (1.0, 1.01, 0.99, 1.02, 0.98, 1.22), strict=True):
        write(name, factor)
    members, failures = gather_members([tmp_path], tell=silent)
    assert not failures
    assert [member.name for member in members] == list("abcdef")
    scores = score(members)
    assert [place for place in range(6) if abs(scores[place, "md"]) > 3.5] == [5]
    page = read_page(cohort_page(members, failures={}, root=tmp_path))
    assert len(page.classes("tr", "flagged")) == 1
    assert "f: MD is 0.9" in page.text
    assert "robust deviations above the others" in page.text


def test_methods_are_judged_among_themselves_and_a_few_not_at_all(write, tmp_path):
    for name in "abcdef":
        write(name)
    write("g", 1.3, method="ade")
    members, _ = gather_members([tmp_path], tell=silent)
    scores = score(members)
    assert scores[6, "md"] is None
    assert scores[0, "md"] == 0


def test_links_lead_to_the_reports_from_where_the_page_lies(write, tmp_path, read_page):
    tensor = write("a b#c")
    (tensor.parent / "report.html").write_text("<p>page</p>")
    write("other")
    members, _ = gather_members([tmp_path], tell=silent)
    out = tmp_path / "pages" / "cohort.html"
    write_cohort_page(out, members, failures={})
    links = [link for link in read_page(out.read_text()).links if not link.startswith("#")]
    assert len(links) == 1, "no link where there is no report"
    assert (out.parent / unquote(links[0])).read_text() == "<p>page</p>"


def test_every_column_can_be_sorted_and_cells_hold_plain_numbers(write, tmp_path, read_page):
    write("a")
    members, _ = gather_members([tmp_path], tell=silent)
    page = read_page(cohort_page(members, failures={}, root=tmp_path))
    buttons, lines = page.classes("button", "sort"), [found for name, found in page.elements if name == "td"]
    assert len(buttons) == 13
    numbers = [float(found["data-value"]) for found in lines if found["data-value"] not in ("", "tensorldm")]
    assert len(numbers) == 11
    assert "Nobody is judged" in page.text


def test_a_broken_one_is_named_and_stops_nobody(write, tmp_path, read_page):
    write("good")
    broken = write("broken")
    sidecar_path(broken).write_text("{}")
    members, failures = gather_members([tmp_path], tell=silent)
    assert [member.name for member in members] == ["good"]
    assert list(failures) == [str(broken)]
    assert (
        "not a reconstruction's sidecar (it has no 'Method')"
        in read_page(cohort_page(members, failures=failures, root=tmp_path)).text
    )


def test_two_subjects_of_one_name_are_told_apart_by_their_folders(write, tmp_path):
    first, second = write("anna"), write("bert")
    sidecar_path(second).write_text(sidecar_path(second).read_text().replace('"bert"', '"anna"'))
    assert first != second
    members, _ = gather_members([tmp_path], tell=silent)
    assert [member.name for member in members] == ["anna/anna", "bert/anna"]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("Volumes", [0, 1], "'Volumes'"),
        ("BValues", [0, 1000], "differ in length"),
        ("BValues", [0, 1000, float("inf"), 1000], "finite"),
        ("GradientTable", ["0 0 1"] * 9, "not x y z b"),
        ("GradientTable", ["0 0 up 1000"] * 9, "not x y z b"),
        ("GradientTable", ["0 0 nan 1000"] * 9, "not x y z b"),
        ("GradientTable", ["0 0 0 1000"] * 9, "not x y z b"),
        ("GradientTable", ["0 0 0 0"], "not all in GradientTable"),
        ("Model", {"Title": "m"}, "WeightsSHA256"),
        ("Model", {"Title": "m", "WeightsSHA256": "ab"}, "Samples, Steps, Seed or Sampler"),
        ("Warnings", "none", "'Warnings'"),
        ("Inputs", ["dwi"], "'Inputs'"),
    ],
)
def test_a_sidecar_that_somebody_edited_is_refused_with_what_is_wrong_in_it(key, value, words, write):
    tensor = write("anna")
    note = json.loads(sidecar_path(tensor).read_text())
    del note["Samples"], note["Model"]
    sidecar_path(tensor).write_text(json.dumps({**note, key: value}))
    with pytest.raises(DataError, match=re.escape(str(sidecar_path(tensor)))) as refused:
        read_recorded(tensor)
    assert words in str(refused.value)


def test_a_model_that_draws_nothing_needs_no_word_about_samples(write):
    tensor = write("anna")
    note = json.loads(sidecar_path(tensor).read_text())
    for key in ("Samples", "Steps", "Seed", "Sampler"):
        del note[key]
    sidecar_path(tensor).write_text(json.dumps(note))
    recorded = read_recorded(tensor)
    assert "It gives one tensor and draws nothing" in method_text(recorded.result, recorded.notes)


def test_several_tensors_in_a_place_are_not_chosen_from(write, tmp_path):
    write("anna")
    write("bert")
    with pytest.raises(DataError, match="2 tensor images in it"):
        find_tensor(tmp_path)


def test_nothing_to_show_is_an_error_that_says_what_to_give(tmp_path):
    with pytest.raises(DataError, match="no reconstruction in or below"):
        gather_members([tmp_path], tell=silent)
    with pytest.raises(DataError, match="there is no such file or folder"):
        gather_members([tmp_path / "nowhere"], tell=silent)
