"""The page that starts from error messages quotes messages that exist."""

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
PLACEHOLDER = "…"


def _texts(path: Path) -> list[str]:
    """Every string of a module, with a sign for each value that is put into it."""
    texts = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in node.values)
            texts.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append(node.value)
    return texts


MESSAGES = [text for path in (REPOSITORY / "src" / "tensorldm").rglob("*.py") for text in _texts(path)]


def _is_said(quote: str) -> bool:
    pattern = ".*?".join(re.escape(part.strip()) for part in quote.split(PLACEHOLDER))
    return any(re.search(pattern, text) for text in MESSAGES)


@pytest.mark.parametrize("quote", QUOTED)
def test_a_quoted_message_is_one_that_the_program_can_say(quote):
    assert _is_said(quote)


def test_the_search_tells_a_message_that_nobody_says():
    assert not _is_said("the moon is in the way")
    assert not _is_said("no gradients beside it … the moon")
    assert len(QUOTED) > 30
