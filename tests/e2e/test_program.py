"""The installed program as a newcomer meets it."""

import subprocess
import sys


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tensorldm", *arguments], capture_output=True, text=True, timeout=120)


def test_help_lists_the_verbs_without_loading_torch():
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "tensorldm", "--help"], capture_output=True, text=True
    )
    assert answer.returncode == 0
    assert "doctor" in answer.stdout
    imported = {line.split("|")[-1].strip() for line in answer.stderr.splitlines() if "|" in line}
    assert not imported & {"torch", "numpy", "nibabel", "dipy", "pydantic", "matplotlib"}


def test_version_is_printed():
    from tensorldm import __version__

    assert _run("--version").stdout.strip() == f"tensorldm {__version__}"


def test_an_unknown_verb_ends_with_code_2():
    answer = _run("frobnicate")
    assert answer.returncode == 2
    assert "frobnicate" in answer.stderr


def test_doctor_runs():
    answer = _run("doctor")
    assert answer.returncode == 0
    assert "torch" in answer.stdout
