"""The doctor's table."""

import io
import sys

from rich.console import Console

from tensorldm import doctor


def _text() -> str:
    console = Console(width=200, file=io.StringIO())
    console.print(doctor.examine("the shipped one"))
    return console.file.getvalue()


def test_it_names_versions_device_and_purpose():
    import torch

    text = _text()
    assert torch.__version__ in text
    assert "--device auto" in text
    assert "tractography" in text
    assert "the shipped one" in text


def test_a_missing_program_and_package_are_called_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(doctor, "PACKAGES", {"no-such-package": "nothing"})
    assert _text().count("missing") == 1 + len(doctor.PROGRAMS)


def test_a_program_beside_the_interpreter_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    program = tmp_path / "dcm2niix"
    program.write_text("#!/bin/sh\necho version 1.2.3\n")
    program.chmod(0o755)
    assert "version 1.2.3" in _text()
