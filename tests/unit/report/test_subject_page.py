"""The page of one reconstruction: whole, safe, self-contained, and true to the result."""

import base64
import hashlib
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorldm.components import COMPONENTS
from tensorldm.report.subject_page import subject_page

pytest.importorskip("matplotlib")
_shared = runpy.run_path(str(Path(__file__).parent / "conftest.py"))
as_closed_form, TABLE = _shared["as_closed_form"], _shared["TABLE"]
SAMPLED_MAPS = {"v1-cone", "fa-width", "md-width", "prior-sd"}


@pytest.fixture
def document(result, notes) -> str:
    return subject_page(result, notes)


def test_every_element_is_closed_every_anchor_leads_somewhere_and_no_name_is_used_twice(document, read_page):
    page = read_page(document)
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.links) > 8


def test_everything_that_was_promised_is_shown(document, read_page):
    page = read_page(document)
    maps = {found["id"] for found in page.classes("figure", "map")}
    assert maps == {
        *("fa", "md", "colour-fa", "b0", "prior-share", "consistency", "spd-touched"),
        *SAMPLED_MAPS,
        *(f"D{name}" for name in COMPONENTS),
    }
    assert len(page.images) == 3 * len(maps)
    for words in (
        "The head was <b>tilted</b> & moved.",
        "98.77%",  # positive definite before projection
        "healthy adults",
        "Volumes used",
        "4 samples were drawn and averaged",
        "Junhyeok Lee and Kyu Sung Choi",
        "ab" * 32,
        "cd" * 32,
        "found in the b=0 image",
        "Research use only",
    ):
        assert words in page.text


def test_nothing_is_fetched_and_the_page_itself_forbids_it(document, read_page, fetched):
    assert fetched(document) == []
    page = read_page(document)
    assert all(image["src"].startswith("data:image/webp;base64,") for image in page.images)
    policy = next(found["content"] for name, found in page.elements if found.get("http-equiv"))
    assert policy.startswith("default-src 'none'; img-src data:;")
    script = re.search(r"<script>(.*)</script>", document, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_every_picture_says_in_words_what_it_shows(document, read_page):
    page = read_page(document)
    assert all(len(image["alt"]) > 10 for image in page.images)
    assert len({image["alt"] for image in page.images}) == len(page.images)
    assert sum("Median inside the brain" in image["alt"] for image in page.images) > 10
    charts = [found for name, found in page.elements if name == "svg"]
    assert len(charts) == 3
    assert all(found["role"] == "img" and found["aria-label"] for found in charts)


def test_names_from_strangers_files_are_shown_and_not_obeyed(result, notes, read_page):
    evil = '"><img src=x onerror=alert(1)><script>alert(2)</script>'
    hostile = {
        **notes,
        "Subject": evil,
        "Method": evil,
        "Brain": evil,
        "Inputs": {evil: evil},
        "Versions": {evil: evil},
    }
    page = read_page(subject_page(replace(result, warnings=(evil,)), hostile))
    assert sum(name == "script" for name, _ in page.elements) == 1
    assert not any("onerror" in found for _, found in page.elements)
    assert page.text.count(evil) >= 5


def test_a_single_result_has_no_cone_and_says_why(result, notes, read_page):
    page = read_page(subject_page(*as_closed_form(result, notes)))
    assert not SAMPLED_MAPS & {found.get("id") for found in page.classes("figure", "map")}
    assert "a single result, not several samples" in page.text


def test_figures_outside_the_expected_range_are_marked(result, notes, read_page):
    assert not read_page(subject_page(result, notes)).classes("div", "out")
    page = read_page(subject_page(replace(result, tensor=result.tensor * 0.6), notes))
    assert len(page.classes("div", "out")) == 1
    assert "below the usual 0.60 to 0.90" in page.text


def test_a_head_without_white_matter_is_told_and_not_a_crash(result, notes, read_page):
    water = np.zeros_like(result.tensor)
    water[..., :3] = 3e-3 * result.mask[..., None]
    page = read_page(subject_page(replace(result, tensor=water), notes))
    assert "no voxel has FA > 0.25" in page.text


def test_what_nobody_measured_is_a_share_or_left_out_or_nothing_at_all(result, notes, read_page):
    nothing = replace(result, extra={**result.extra, "prior_share": np.zeros_like(result.extra["prior_share"])})
    many = replace(nothing, volumes=(0, *range(1, 7)), bvals=(0.0, *[1000.0] * 6))
    table = ["0 0 0 0", *(f"{x} {y} {z} 1000" for x, y, z in np.linalg.qr(np.eye(3) + 0.3)[0]), *TABLE[2:]]
    for shown, sidecar, words in (
        (result, notes, "share that is the method's"),
        (nothing, notes, "what the directions do not see is missing"),
        (many, {**notes, "GradientTable": table}, "6 directions measure the whole tensor"),
    ):
        assert words in read_page(subject_page(shown, sidecar)).text


def test_no_warnings_are_said_to_be_none(result, notes, read_page):
    assert "No warnings." in read_page(subject_page(replace(result, warnings=()), notes)).text


def test_the_three_chosen_directions_are_marked_with_their_volumes_and_angles(document, read_page):
    page = read_page(document)
    marks = [found["class"] for name, found in page.elements if name == "circle" and "used" in found["class"]]
    assert marks == ["used red", "used green", "used blue"]
    assert [found for name, found in page.elements if found.get("class") == "dot"]
    for angle in ("11.4°", "6.5°", "8.9°"):
        assert angle in page.text


def test_files_of_an_earlier_version_still_make_a_page(result, notes, read_page):
    del notes["GradientTable"]
    assert "did not keep the gradient table" in read_page(subject_page(result, notes)).text


def test_the_same_result_gives_the_same_bytes(result, notes, document):
    assert subject_page(result, notes) == document
