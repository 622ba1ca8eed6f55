"""What the documents promise about the code."""

import re
import tomllib
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


def test_a_choice_is_cited_where_the_page_says_that_it_is_carried_out():
    text = (REPOSITORY / "docs/choices.md").read_text()
    uncited = [
        label
        for label, row in re.findall(r"^\| ([a-z0-9-]+) \|(.*)$", text, re.MULTILINE)
        if label != "label"
        and not any(
            f"[choice: {label}]" in (PACKAGE / place).read_text()
            for place in re.findall(r"`([\w/]+\.(?:py|yaml))`", row.rpartition(" | ")[2])
        )
    ]
    assert not uncited


def test_the_first_place_of_an_equation_cites_it():
    text = (REPOSITORY / "docs/paper_map.md").read_text()
    silent = [
        label
        for label, place in re.findall(r"^\| (E\d+) \|.*?\| `([\w/]+\.py)`", text, re.MULTILINE)
        if not re.search(rf"\[(?:E\d+, )*{label}(?:, E\d+)*\]", (PACKAGE / place).read_text())
    ]
    assert not silent


def test_the_layers_on_the_page_are_those_that_are_checked():
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (checked,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = (REPOSITORY / "docs/architecture.md").read_text().partition("\n## Layers\n")[2].partition("\n## ")[0]
    told = re.findall(r"^    (\w+(?: \| \w+)*)", page, re.MULTILINE)
    assert told == [re.sub(r"[()]", "", layer) for layer in checked]


def test_every_exit_code_of_the_program_has_a_line():
    names = "USER_ERROR|INTERRUPTED|SOME_FAILED|STOPPED"
    codes = {
        code
        for path in (PACKAGE / "cli").glob("*.py")
        for code in re.findall(rf"^(?:{names})(?:, \w+)? = (\d+)", path.read_text(), re.MULTILINE)
    }
    assert len(codes) > 3
    page = (REPOSITORY / "docs/troubleshooting.md").read_text()
    assert codes | {"0"} == set(re.findall(r"^\| (\d+) \|", page, re.MULTILINE))


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


PAGES = [*DOCS, REPOSITORY / "SECURITY.md", *sorted((REPOSITORY / "docs" / "howto").glob("*.md"))]


def anchor(heading: str) -> str:
    """What a heading is called in an address."""
    kept = "".join(letter for letter in heading.strip().lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_into_a_page_lead_to_a_heading(path):
    lost = []
    for page, name in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", path.read_text()):
        if "://" not in page:
            target = (path.parent / page).resolve() if page else path
            lost += (
                [name] if name not in map(anchor, re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)) else []
            )
    assert not lost


def test_every_page_is_linked_from_the_readme():
    linked = set(re.findall(r"\]\((docs/[^)#\s]+\.md)", (REPOSITORY / "README.md").read_text()))
    assert {path.relative_to(REPOSITORY).as_posix() for path in (REPOSITORY / "docs").rglob("*.md")} == linked
