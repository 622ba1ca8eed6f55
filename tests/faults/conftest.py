"""Small cohorts of virtual heads, and the program in this process or as one that can be killed."""

import hashlib
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

_shared = runpy.run_path(str(Path(__file__).parents[1] / "integration" / "prepare" / "conftest.py"))
clean, program = _shared["scan"], _shared["program"]
QUIET = (
    "import os; os.fsync = lambda _: None; import tensorldm.cli.reconstruct as verb; verb.draw = verb.describe = None"
)
"""Pictures are most of the time, and other tests look at them."""


@pytest.fixture
def cohort(clean, tmp_path):
    """An HCP tree of as many heads as asked for, each with its own noise."""

    def make(count: int) -> Path:
        root = tmp_path / "cohort"
        for number in range(count):
            noise = np.random.default_rng(number).normal(scale=4, size=clean.data.shape)
            replace(clean, data=clean.data + noise).write_hcp(root / f"{900001 + number}")
        return root

    return make


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No pictures, and the disk's own cache is trusted: the tests cut processes, not the computer's power."""
    from tensorldm.cli import reconstruct

    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(reconstruct, "draw", None)
    monkeypatch.setattr(reconstruct, "describe", None)


@pytest.fixture
def start(tmp_path):
    """Start the program as a process of its own; ``before`` is code that runs in it first."""
    running = []

    def call(*arguments: object, before: str = "") -> subprocess.Popen:
        code = f"import sys\n{QUIET}\n{before}\nsys.argv = {['tensorldm', *map(str, arguments)]!r}\n"
        code += "from tensorldm.cli.main import run\nif __name__ == '__main__':\n    run()\n"
        script = tmp_path / f"program{len(running)}.py"
        script.write_text(code)  # workers read it too, all but its last line
        process = subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a Ctrl-C for all its processes is then one for nobody else
        )
        running.append(process)
        return process

    yield call
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.communicate()


def results(folder: Path) -> dict[str, str]:
    """Every file of a result by name and contents; the journal knows times, so it is left out."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".tensorldm" not in path.parts
    }


def debris(*folders: Path) -> list[Path]:
    """What is unfinished or locked."""
    return [path for folder in folders for path in folder.rglob(".*") if path.name.endswith((".part", ".lock"))]


@pytest.fixture
def check():
    """``results`` and ``debris`` for tests, which cannot import from here."""
    return results, debris
