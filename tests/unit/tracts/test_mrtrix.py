import os
import time
from pathlib import Path
from threading import Timer

import pytest

from tensorldm.errors import ConfigError, ToolError
from tensorldm.tracts.dipy_engine import DipyEngine
from tensorldm.tracts.engine import open_engine
from tensorldm.tracts.mrtrix import Mrtrix, find_mrtrix, need_mrtrix


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """A tckgen that does what the test says, alone on the path."""

    def make(script):
        program = tmp_path / "bin" / "tckgen"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}/bin{os.pathsep}/usr/bin")
        return program

    return make


def test_without_mrtrix_dipy_tracks_and_asking_for_mrtrix_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_mrtrix() is None
    assert isinstance(open_engine("auto"), DipyEngine)
    with pytest.raises(ToolError, match=r"tckgen is not on the path. Install MRtrix3 .* --engine dipy"):
        open_engine("mrtrix")


def test_an_unknown_engine_is_told():
    with pytest.raises(ConfigError, match="'camino'"):
        open_engine("camino")


@pytest.mark.parametrize(
    ("answer", "words"),
    [("echo '== tckgen 0.3.15 =='", "version 0.3.15 is too old"), ("echo hello", "does not say which version")],
)
def test_a_wrong_version_is_told(pretend, answer, words):
    pretend(answer)
    with pytest.raises(ToolError, match=words):
        need_mrtrix()


def test_the_version_is_found(pretend):
    program = pretend("echo '== tckgen 3.0.4 =='")
    found = need_mrtrix()
    assert (found.tckgen, found.version) == (program, "3.0.4")


def test_what_mrtrix_says_went_wrong_is_passed_on_as_a_sentence(pretend):
    program = pretend('echo "tckgen: [ERROR] no seed image" >&2; exit 1')
    with pytest.raises(ToolError, match=r"^tckgen failed: no seed image. Install"):
        Mrtrix(program, "3.0.3").run(["a", "b"], seed=1)


def test_a_program_that_cannot_start_is_told(tmp_path):
    with pytest.raises(ToolError, match="does not start"):
        Mrtrix(tmp_path / "nothing", "3.0.3").run([], seed=1)


def test_seed_and_threads_reach_the_program(pretend, tmp_path):
    program = pretend(f'echo "$MRTRIX_RNG_SEED $*" > {tmp_path}/said')
    Mrtrix(program, "3.0.3").run(["one", Path("two")], seed=17)
    assert (tmp_path / "said").read_text() == "17 one two -nthreads 0 -quiet\n"


def test_the_command_line_is_logged(pretend, caplog):
    program = pretend("true")
    with caplog.at_level("INFO"):
        Mrtrix(program, "3.0.3").run(["image with blank.nii"], seed=3)
    assert "MRTRIX_RNG_SEED=3" in caplog.text
    assert "'image with blank.nii' -nthreads 0" in caplog.text


def test_a_running_command_is_ended_when_asked(pretend):
    mrtrix = Mrtrix(pretend("exec sleep 30"), "3.0.3")
    Timer(0.3, mrtrix.stop.set).start()
    start = time.monotonic()
    mrtrix.run([], seed=1)
    assert time.monotonic() - start < 10
