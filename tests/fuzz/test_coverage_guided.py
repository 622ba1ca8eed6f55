"""The coverage-guided fuzzer, where Atheris is installed: one reader for a moment, all three under ``make fuzz``."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "coverage_guided.py"
LONG = "TENSORLDM_FUZZ_SECONDS" in os.environ
SECONDS = int(os.environ.get("TENSORLDM_FUZZ_SECONDS", "1"))


@pytest.mark.skipif(find_spec("atheris") is None, reason="Atheris is not installed: pip install 'tensorldm[fuzz]'")
@pytest.mark.parametrize("reader", ["gradients", "header", "config"] if LONG else ["header"])
def test_a_guided_search_finds_no_crash(reader, tmp_path):
    ended = subprocess.run(
        [
            sys.executable,
            str(PROGRAM),
            reader,
            f"-max_total_time={SECONDS}",
            f"-artifact_prefix={tmp_path}/",
            "-seed=1",
            "-rss_limit_mb=0",  # a process starts with the peak memory of the one that started it
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS + 240,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert "Done" in ended.stderr
    assert not list(tmp_path.glob("crash-*"))
