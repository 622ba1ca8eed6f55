"""The page's own files: whole, from here, as their makers published them."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path

import pytest

STATIC = Path(str(files("tensorldm"))) / "viewer" / "static"
OURS = sorted(path for path in STATIC.rglob("*") if path.suffix in (".html", ".css", ".js") and "umd" not in path.name)


def test_niivue_is_the_published_file_and_its_licence_stands_beside_it():
    told = (STATIC / "niivue.LICENSE.txt").read_text()
    digest = hashlib.sha256((STATIC / "niivue.umd.js").read_bytes()).hexdigest()
    assert digest in told
    assert "BSD 2-Clause" in told
    for part in ("gl-matrix", "fflate", "nifti-reader-js", "zarrita", "numcodecs"):
        assert f"\n{part}" in told


def test_no_source_maps_are_shipped():
    assert not list(STATIC.rglob("*.map"))
    assert b"sourceMappingURL" not in (STATIC / "niivue.umd.js").read_bytes()


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_is_loaded_from_elsewhere(path):
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"(https?:)?//[a-z0-9.-]+\.[a-z]{2,}/", text)


@pytest.mark.parametrize("path", [path for path in OURS if path.suffix == ".js"], ids=lambda path: path.name)
def test_text_from_files_never_becomes_markup(path):
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", path.read_text()
    )


def test_the_page_has_no_inline_code_that_the_policy_would_refuse():
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"\son\w+=", page)
    assert not re.search(r"\sstyle=", page)
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)


def test_every_control_that_the_code_asks_for_is_on_the_page():
    page = (STATIC / "index.html").read_text()
    asked = {
        name
        for path in OURS
        if path.suffix == ".js"
        for name in re.findall(r"(?:getElementById|\bby)\('([\w-]+)'\)", path.read_text())
    }
    assert len(asked) > 20
    assert not [name for name in asked if f'id="{name}"' not in page]


def test_every_key_of_the_help_is_one_that_works():
    listed = re.findall(r"<tr><th>([^<]+)</th>", (STATIC / "index.html").read_text())
    letters = {letter for line in listed for letter in re.findall(r"(?<!\w)([a-z?,.])(?!\w)", line)}
    code = (STATIC / "js" / "keys.js").read_text()
    known = set(re.findall(r"^  (?:'(.)'|(\w)):", code, re.MULTILINE)) | set(
        re.findall(r"(?:\{ \.\.\.ACTIONS, |, )(?:'(.)'|(\w)):", code)
    )
    assert letters - {","} <= {a or b for a, b in known}
