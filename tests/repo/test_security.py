"""Nothing runs code from data, starts a shell or opens a connection: read from the syntax, not from the letters."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "tensorldm"
SOURCES = sorted(
    path for folder in ("src", "tests", "benchmarks", "tools", "docs") for path in (REPOSITORY / folder).rglob("*.py")
)
UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
CONNECTIONS = {"urllib.request", "http.client", "ftplib", "smtplib", "requests", "httpx", "aiohttp", "telnetlib"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
UNSAFE_YAML = {"yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.Loader", "yaml.UnsafeLoader"}
UNPACKERS = {"shutil.unpack_archive", "extractall", "tempfile.mktemp"}
BY_THEIR_FULL_NAMES = {"torch.load", "torch.serialization.load"}
"""Allowed with the right words; under a shorter name nobody would look for them."""
FORBIDDEN = CONNECTIONS | SHELLS | UNSAFE_YAML | UNPACKERS
RUNNERS = {"eval", "exec", "compile", "__import__"}
OWN_CONNECTIONS = {"viewer", "work"}
"""Parts of the package that may listen or ask on this machine: the viewer's page, and the lock's holder."""


def problems(source: str) -> list[str]:
    """What is forbidden in a module's source, by the name it goes by."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            found += [name for name in names if name in BY_THEIR_FULL_NAMES]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            names = []
        found += [name for name in names if name.split(".")[0] in UNPICKLERS | CONNECTIONS or name in FORBIDDEN]
        if isinstance(node, ast.Call):
            found += _problems_of_call(node)
    return found


def _problems_of_call(call: ast.Call) -> list[str]:
    name = ast.unparse(call.func)
    given = {word.arg: ast.unparse(word.value) for word in call.keywords}
    found = [name] if name in RUNNERS or name.rpartition(".")[2] in UNPACKERS else []
    if name == "torch.load" and given.get("weights_only") != "True":
        found.append("torch.load without weights_only")
    if given.get("allow_pickle", "False") != "False":
        found.append("allow_pickle")
    # Elsewhere a shell is one of b-values.
    if given.get("shell") == "True" or (name.startswith("subprocess.") and given.get("shell", "False") != "False"):
        found.append("shell")
    return found


def test_no_source_runs_code_from_data_or_a_shell_or_opens_a_connection():
    # A test may ask the viewer's page as a browser does.
    allowed = {path: CONNECTIONS if path.is_relative_to(REPOSITORY / "tests") else set() for path in SOURCES}
    guilty = {path: set(problems(path.read_text(encoding="utf-8"))) - allowed[path] for path in SOURCES}
    assert not {str(path.relative_to(REPOSITORY)): found for path, found in guilty.items() if found}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import torch\ntorch.load(path)",
        "from torch import load",
        "import torch\ntorch.load(path, weights_only=False)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "from yaml import unsafe_load",
        "import subprocess\nsubprocess.run(command, shell=True)",
        "import subprocess\nsubprocess.run(command, shell=wanted)",
        "import os\nos.system(command)",
        "eval(text)",
        "exec(compile(text, name, 'exec'))",
        "import urllib.request",
        "from urllib.request import urlopen",
        "import requests",
        "archive.extractall(folder)",
        "import tempfile\ntempfile.mktemp()",
    ],
)
def test_the_search_finds_what_it_is_for(source):
    assert problems(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(path, weights_only=True)",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "import re\nre.compile(text)",
        "model.eval()",
        "import yaml\nyaml.safe_load(text)",
        "import subprocess\nsubprocess.run(['true'])",
        "select_axes(gradients, shell=1000.0)",
        "from urllib.parse import quote",
    ],
)
def test_the_search_lets_honest_code_pass(source):
    assert not problems(source)


def test_only_the_parts_that_serve_a_page_or_hold_a_lock_know_sockets():
    knowing = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(import|from) (socket|http|socketserver|asyncio)\b", path.read_text(), re.MULTILINE)
    }
    assert knowing <= OWN_CONNECTIONS


def test_every_package_that_anything_here_asks_for_is_pinned():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(spec for group in project["optional-dependencies"].values() for spec in group)]
    names = {re.split(r"[\[>=<;~! ]", spec)[0].lower() for spec in asked} - {"tensorldm"}
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].strip().lower() for line in lines if "==" in line}
    assert not {name for name in names if name.replace("_", "-") not in {pin.replace("_", "-") for pin in pinned}}


def test_constraints_are_exact_versions_and_nothing_else():
    lines = [line.partition("#")[0].strip() for line in (REPOSITORY / "constraints.txt").read_text().splitlines()]
    assert not [line for line in lines if line and not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line)]


def test_the_security_policy_says_how_to_report_and_names_the_commands():
    policy = (REPOSITORY / "SECURITY.md").read_text()
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for command in ("sbom", "audit", "fuzz"):
        assert f"make {command}" in policy
        assert command in targets
    assert re.search(r"report", policy, re.IGNORECASE)
