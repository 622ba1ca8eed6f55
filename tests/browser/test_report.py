"""The report's pages in a real browser: nothing fetched, nothing broken, pictures with a brain in them."""

import io
import os
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.reconstruct.naming import Naming
from tensorldm.reconstruct.outputs import write_result
from tensorldm.report.cohort_members import gather_members
from tensorldm.report.cohort_page import write_cohort_page
from tensorldm.report.compare_fields import read_comparison
from tensorldm.report.compare_page import write_compare_page
from tensorldm.report.subject_page import write_subject_page

pytest.importorskip("matplotlib")
_heads = runpy.run_path(str(Path(__file__).parents[1] / "unit" / "report" / "conftest.py"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Path:
    """A report, a comparison and a cohort of small heads."""
    root = tmp_path_factory.mktemp("pages")
    result, notes = _heads["make_result"](), _heads["make_notes"]()
    write_subject_page(root / "report.html", result, notes)
    _write_cohort(root, result, notes)
    _write_comparison(root, result)
    return root


def _write_cohort(root, result, notes):
    for name, factor in zip("abcdef", (1.0, 1.01, 0.99, 1.02, 0.98, 1.22), strict=True):
        other = replace(result, tensor=(factor * result.tensor).astype(np.float32), notes=notes)
        known = {**notes, "Subject": name}
        write_result(other, Naming(Path(name), None), root=root, convention="mrtrix", notes=known, shared={})
    write_subject_page(root / "c" / "report.html", result, notes)
    members, _ = gather_members([root], tell=lambda _: None)
    write_cohort_page(root / "cohort.html", members, failures={})


def _write_comparison(root, result):
    paths = [root / "fields" / f"{name}.nii.gz" for name in ("mask", "reference", "near")]
    write_mask(paths[0], result.mask, space=result.space)
    for path, factor in zip(paths[1:], (1.0, 1.1), strict=True):
        origin = Provenance(path.name.partition(".")[0] + " fit", "anna", paths[0])
        packed = (factor * result.tensor).astype(np.float32)
        write_tensor(path, packed, space=result.space, notes=origin.notes_for(path))
    write_compare_page(root / "compare.html", read_comparison(paths[1], paths[2:]))


def shot(element) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(element.screenshot())).convert("RGB")).astype(float)


@pytest.mark.parametrize("name", ["report", "compare", "cohort"])
@pytest.mark.parametrize("width", [1280, 1920])
def test_a_page_opens_from_disk_fits_its_window_and_every_picture_is_there(pages, page, look, name, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((pages / f"{name}.html").as_uri())
    sizes = page.eval_on_selector_all("img", "images => images.map(i => [i.complete, i.naturalWidth])")
    assert len(sizes) >= 6
    assert all(complete and natural > 0 for complete, natural in sizes)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=look / f"{name}-{width}.png", full_page="TENSORLDM_PICTURES" in os.environ)


def test_maps_are_not_blank_and_a_left_right_bundle_is_red(pages, page):
    page.goto((pages / "report.html").as_uri())
    fa = shot(page.locator("#fa img").first)
    assert fa.std() > 10
    colours = shot(page.locator("#colour-fa img").first).reshape(-1, 3)
    red, green, blue = colours[colours.sum(axis=1) > 60].mean(axis=0)
    assert red > 2 * max(green, blue)


def test_pictures_keep_the_shape_of_the_head_in_millimetres(pages, page):
    page.goto((pages / "report.html").as_uri())
    first = page.locator("#fa img").first
    box = first.bounding_box()
    across, down = (float(part) for part in first.evaluate("i => i.style.aspectRatio").split("/"))
    assert box["width"] / box["height"] == pytest.approx(across / down, rel=0.02)


def test_a_picture_is_enlarged_by_the_keyboard_and_escape_brings_one_back(pages, page):
    page.goto((pages / "report.html").as_uri())
    button = page.locator("#md button.enlarge")
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog[open] img").count() == 3
    small, large = (page.locator(f"{where} img").first.bounding_box()["width"] for where in ("#md", "dialog"))
    assert large > small
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0
    assert button.evaluate("b => b === document.activeElement")


def test_dark_and_light_follow_the_system_and_text_stays_readable(pages, page):
    page.goto((pages / "report.html").as_uri())
    found = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        style = "getComputedStyle(document.body)"
        colours = (page.evaluate(f"{style}.{which}") for which in ("backgroundColor", "color"))
        paper, ink = (sum(map(int, text[4:-1].split(","))) / 3 for text in colours)
        found[scheme] = paper
        assert abs(paper - ink) > 150, scheme
    assert found["dark"] < 60 < 200 < found["light"]


def test_the_method_text_can_be_copied(pages, page):
    page.goto((pages / "report.html").as_uri())
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    selected = page.evaluate("getSelection().toString()")
    assert "Diffusion tensors were reconstructed with TensorLDM" in selected
    assert "[2]" in selected


def test_one_plane_is_shown_at_a_time_and_all_of_them_in_print(pages, page):
    page.goto((pages / "compare.html").as_uri())
    planes = ("axial", "coronal", "sagittal")

    def shown():
        return [plane for plane in planes if page.locator(f"#fa [data-plane-of={plane}]").first.is_visible()]

    assert shown() == ["axial"]
    page.get_by_label("axial").focus()
    page.keyboard.press("ArrowRight")
    assert shown() == ["coronal"]
    page.emulate_media(media="print")
    assert shown() == list(planes)
    assert not page.locator("nav").is_visible()


def test_a_cohort_is_sorted_by_its_headings_both_ways_and_links_to_reports(pages, page):
    page.goto((pages / "cohort.html").as_uri())

    def names():
        return page.locator("tbody th").all_inner_texts()

    heading = page.locator("th", has=page.get_by_role("button", name="MD", exact=True))
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert names() == ["e", "c", "a", "b", "d", "f"]
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert names() == ["f", "d", "b", "a", "c", "e"]
    assert page.locator("tr.flagged th").all_inner_texts() == ["f"]
    page.get_by_role("link", name="c", exact=True).click()
    assert page.locator("h1").inner_text() == "sub-07"
