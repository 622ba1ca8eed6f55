"""What the documents promise about the code."""

import re
from pathlib import Path

import pytest

from tensorldm.metrics import ranges

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "tensorldm"
DOCS = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def test_every_choice_in_the_code_is_explained():
    cited = {
        label for path in PACKAGE.rglob("*.py") for label in re.findall(r"\[choice: ([a-z0-9-]+)\]", path.read_text())
    }
    explained = set(re.findall(r"^\| ([a-z0-9-]+) \|", (REPOSITORY / "docs/choices.md").read_text(), re.MULTILINE))
    assert cited <= explained, f"no row in docs/choices.md: {sorted(cited - explained)}"


def test_every_equation_has_a_line():
    lines = re.findall(r"^\| (E\d+) \|", (REPOSITORY / "docs/paper_map.md").read_text(), re.MULTILINE)
    assert lines == [f"E{number}" for number in range(1, 14)]


@pytest.mark.parametrize("name", ["paper_map.md", "choices.md"])
def test_the_places_that_documents_name_exist(name):
    text = (REPOSITORY / "docs" / name).read_text()
    absent = [place for place in re.findall(r"`([\w/]+\.py)`", text) if not (PACKAGE / place).is_file()]
    assert not absent


def test_the_functions_that_the_map_names_exist():
    text = (REPOSITORY / "docs/paper_map.md").read_text()
    places = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", text)
    assert len(places) > 10
    absent = [
        f"{place}: {symbol}"
        for place, symbols in places
        for symbol in re.findall(r"\w+", symbols)
        if not re.search(rf"^(?:def|class) {symbol}\b", (PACKAGE / place).read_text(), re.MULTILINE)
    ]
    assert not absent


def power(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-").replace("-", "−", 1 if value < 0 else 0)


def test_the_published_constants_are_those_of_the_code():
    text = (REPOSITORY / "docs/measures.md").read_text()
    for promise in (
        f"range {power(ranges.DIAGONAL_RANGE_MM2_PER_S)} mm²/s for the diagonal, MD and RD",
        f"{power(ranges.OFF_DIAGONAL_RANGE_MM2_PER_S)} (−1e-3 to 1e-3) for the off-diagonals",
        f"σ = {ranges.SSIM_SIGMA_VOXELS:g} voxels cut at {ranges.SSIM_RADIUS_VOXELS} voxels",
        f"K1 = {ranges.SSIM_K1:g}, K2 = {ranges.SSIM_K2:g}",
        f"eigenvalues below {power(ranges.LEM_FLOOR_MM2_PER_S)} mm²/s count as",
        f"below {power(ranges.NEGATIVE_EIGENVALUE_MM2_PER_S)} mm²/s",
        f"reference FA > {ranges.V1_MIN_FA:g}",
    ):
        assert promise in text
    assert ranges.DIFFUSIVITY_RANGE_MM2_PER_S == ranges.DIAGONAL_RANGE_MM2_PER_S
    assert ranges.ANISOTROPY_RANGE == 1


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#\s]+)\)", path.read_text())
    broken = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert not broken
