"""What the documents promise about the code."""

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#\s]+)\)", path.read_text())
    broken = [target for target in targets if "://" not in target and not (path.parent / target).exists()]
    assert not broken
