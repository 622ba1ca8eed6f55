"""Promises that the repository makes about itself."""

import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SOURCES = sorted((REPOSITORY / "src").rglob("*.py"))


@pytest.mark.parametrize(
    "forbidden",
    [
        r"\bimport pickle\b",
        r"allow_pickle\s*=\s*True",
        r"\byaml\.load\(",
        r"shell\s*=\s*True",
        r"(?<![\w.])(eval|exec)\(",
        r"(?<!safetensors\.)torch\.load\((?!.*weights_only\s*=\s*True)",
    ],
)
def test_nothing_loads_code_from_data(forbidden):
    guilty = [str(path) for path in SOURCES if re.search(forbidden, path.read_text())]
    assert not guilty


def test_files_stay_one_idea_long():
    long = {str(path): n for path in SOURCES if (n := len(path.read_text().splitlines())) > 350}
    assert not long


def test_annotations_are_never_strings_because_shapes_are_checked_at_run_time():
    assert not [str(path) for path in SOURCES if "from __future__ import annotations" in path.read_text()]


def test_no_tracked_file_names_a_machine_path():
    tracked = subprocess.run(
        ["git", "grep", "-nIE", r"(/ro[o]t/|/ho[m]e/|/wo[r]k/)", "--", ":!LICENSE"],
        cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    assert tracked.stdout == ""


def test_the_readme_shows_the_two_commands_first():
    readme = (REPOSITORY / "README.md").read_text()
    first_commands = re.findall(r"^(make \w+)", readme, flags=re.MULTILINE)[:2]
    assert first_commands == ["make demo", "make test"]


def test_constraints_pin_every_core_dependency():
    pinned = {line.split("==")[0].lower() for line in (REPOSITORY / "constraints.txt").read_text().splitlines()}
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[\[>=<]", spec)[0].lower() for spec in project["dependencies"]}
    assert names <= pinned
