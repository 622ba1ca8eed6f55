"""A wrong call of the program: one line that says what is wrong and where to look, and exit code 2."""

import subprocess
import sys

import pytest


def _call(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "tensorldm", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("reconstruct", "scan.nii.gz", "--workers", "0"),
            "error: Invalid value for '--workers': Input should be greater than or equal to 1. "
            "See 'python -m tensorldm reconstruct -h'.",
        ),
        (("nothing",), "error: No such command 'nothing'. See 'python -m tensorldm -h'."),
        (("tables", "run"), "error: Missing option '--config'. See 'python -m tensorldm tables run -h'."),
    ],
)
def test_a_wrong_call_is_told_in_one_line(words, line):
    done = _call(*words)
    assert done.returncode == 2
    assert done.stderr == f"{line}\n"
    assert done.stdout == ""


def test_no_call_at_all_shows_what_there_is():
    done = _call()
    assert "reconstruct" in done.stdout + done.stderr
    assert "error" not in done.stdout + done.stderr
