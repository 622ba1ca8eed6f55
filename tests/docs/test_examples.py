"""Examples in the how-tos are true: they are run, and give what the page shows."""

import doctest
from pathlib import Path

import pytest

HOWTO = Path(__file__).parents[2] / "docs" / "howto"
PAGES = sorted(path for path in HOWTO.glob("*.md") if ">>> " in path.read_text())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_examples_of_a_page_give_what_it_shows(path):
    told: list[str] = []
    parsed = doctest.DocTestParser().get_doctest(path.read_text(), {}, path.name, str(path), 0)
    results = doctest.DocTestRunner(verbose=False).run(parsed, out=told.append)
    assert results.attempted > 10
    assert results.failed == 0, "".join(told)


def test_the_page_about_python_has_examples():
    assert HOWTO / "python-api.md" in PAGES
