"""What the how-tos promise: links lead somewhere, commands and options exist, recipes copy what there is."""

import re
import tomllib
from pathlib import Path

import pytest
import typer

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app

REPOSITORY = Path(__file__).parents[2]
PAGES = [
    *sorted((REPOSITORY / "docs" / "howto").glob("*.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    REPOSITORY / "README.md",
    REPOSITORY / "SECURITY.md",
]
COMMAND = re.compile(r"\btensorldm(?:\.sif)? ([a-z]+)\b(.*)")
DOCKERFILE = (REPOSITORY / "containers" / "Dockerfile").read_text()
APPTAINER = (REPOSITORY / "containers" / "tensorldm.def").read_text()


def _commands(group: typer.core.TyperGroup) -> dict[str, set[str]]:
    """Every verb with its options; a verb of verbs with those of all."""
    return {
        name: set().union(*_commands(command).values())
        if hasattr(command, "commands")
        else {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in group.commands.items()
    }


def _typed(text: str) -> list[str]:
    """The lines of a page that stand between fences or are indented, as a reader would type them."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()]
    lines += [line for line in text.replace("\\\n", " ").splitlines() if line.startswith("    ")]
    return [line for line in lines if COMMAND.search(line) and not re.search(r"(docker|apptainer) build", line)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#\s]+)\)", path.read_text())
    assert not [target for target in targets if "://" not in target and not (path.parent / target).exists()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_that_a_page_names_exist(path):
    named = re.findall(r"`((?:tests|benchmarks|containers|tools)/[\w/.-]+)`", path.read_text())
    assert not [name for name in named if not (REPOSITORY / name).exists()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_have_the_verbs_and_options_that_a_page_gives_them(path):
    known = _commands(typer.main.get_command(app))
    for line in _typed(path.read_text()):
        verb, rest = COMMAND.search(line.partition("#")[0]).groups()
        assert verb in known, line
        unknown = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)) - known[verb] - {"--help"}
        assert not unknown, line


def test_the_recipes_copy_files_that_exist_and_hide_none_that_they_copy():
    copied = {
        name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    }
    files = APPTAINER.partition("%files")[2].partition("%post")[0]
    assert copied == {line.split()[0] for line in files.strip().splitlines()}
    assert not [name for name in copied if not (REPOSITORY / name).exists()]
    ignore = (REPOSITORY / "containers" / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line.removeprefix("!") for line in ignore if line.startswith("!")} == copied


@pytest.mark.parametrize("recipe", [DOCKERFILE, APPTAINER], ids=["docker", "apptainer"])
def test_the_recipes_install_pinned_versions_of_extras_that_exist(recipe):
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"-c constraints\.txt '\.\[([a-z,]+)\]'", recipe)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert re.search(r"sed -n 's/\^torch==//p' constraints\.txt", recipe)


def test_the_image_does_not_run_as_a_superuser():
    assert re.search(r"^USER (?!root)", DOCKERFILE, re.MULTILINE)


def test_what_is_looked_for_on_a_page_is_found_in_fences_and_by_indents():
    page = "    tensorldm track a \\\n        --out b\n```\ntensorldm no such # why\n```\nand tensorldm does it\n"
    assert _typed(page) == ["tensorldm no such # why", "    tensorldm track a          --out b"]
