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
    REPOSITORY / "docs" / "troubleshooting.md",
    REPOSITORY / "SECURITY.md",
]
DOCKERFILE = (REPOSITORY / "containers" / "Dockerfile").read_text()
APPTAINER = (REPOSITORY / "containers" / "tensorldm.def").read_text()


def _commands() -> dict[str, set[str]]:
    """Every verb with its options."""
    group = typer.main.get_command(app)
    return {
        name: {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in group.commands.items()
    }


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
    known = _commands()
    text = path.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if re.search(r"^ {4,}.*\btensorldm(\.sif)? [a-z]", line)]
    for line in (line for line in lines if not re.search(r"(docker|apptainer) build", line)):
        verb, rest = re.search(r"tensorldm(?:\.sif)? ([a-z]+)\b(.*)", line.partition("#")[0]).groups()
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
