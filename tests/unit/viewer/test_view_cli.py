"""``tensorldm view`` as a user starts and ends it."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

PROGRAM = [sys.executable, "-m", "tensorldm", "view"]


def start(*arguments, temporary):
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments), "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def test_it_prints_an_address_serves_it_and_cleans_up_when_it_is_ended(tmp_path, make_result, tensors):
    make_result(tmp_path / "result", tensors())
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = start(tmp_path / "result", temporary=temporary)
    try:
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]{32,}/", line)
        assert "1 reconstruction " in line
        with urllib.request.urlopen(address[0], timeout=20) as page:
            assert b"TensorLDM" in page.read()
        assert len(list(temporary.glob("tensorldm-view-*"))) == 1
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "removed" in out
    assert "Traceback" not in err
    assert list(temporary.glob("tensorldm-view-*")) == []


def test_what_cannot_be_shown_is_told_in_one_line(tmp_path):
    process = start(tmp_path / "nothing", temporary=tmp_path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no such folder" in err
    assert err.count("\n") == 1
