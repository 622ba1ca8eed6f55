import errno
import json
import os
import stat
from pathlib import Path

import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_bytes, write_json, write_text, writing

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_half_and_fail(path, error):
    with writing(path) as stream:
        stream.write(b"half of the new")
        raise error


def test_text_json_and_bytes_are_written_and_folders_made(tmp_path):
    write_text(tmp_path / "a" / "b" / "note.txt", "µm")
    write_json(tmp_path / "note.json", {"b": 1, "a": "µ"})
    write_bytes(tmp_path / "note.bin", b"\x00\xff")
    assert (tmp_path / "a" / "b" / "note.txt").read_text(encoding="utf-8") == "µm"
    assert list(json.loads((tmp_path / "note.json").read_text())) == ["b", "a"]
    assert (tmp_path / "note.bin").read_bytes() == b"\x00\xff"


def test_a_file_has_the_rights_that_any_new_file_has(tmp_path):
    write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "result.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="interrupted"):
        write_half_and_fail(path, RuntimeError("interrupted"))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.txt"]


def test_a_disk_that_fills_up_in_mid_file_is_one_sentence_and_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match=r"result\.txt: cannot be written \(No space left on device\)\. Free space"):
        write_half_and_fail(tmp_path / "result.txt", FULL)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_turns_out_full_when_flushed_leaves_the_old_file(tmp_path, monkeypatch):
    def flush(_handle):
        raise FULL

    write_text(tmp_path / "result.txt", "old")
    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(DataError, match="No space left on device"):
        write_text(tmp_path / "result.txt", "new")
    assert (tmp_path / "result.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["result.txt"]


def test_a_device_that_is_really_full_is_told(tmp_path, monkeypatch):
    """/dev/full refuses every byte, so the failure comes from the kernel and not from the test."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    real_open = Path.open
    monkeypatch.setattr(Path, "open", lambda self, mode: real_open(Path("/dev/full"), "wb"))
    with pytest.raises(DataError, match="No space left on device"):
        write_bytes(tmp_path / "result.bin", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"file/out/result\.txt: cannot be written"):
        write_text(tmp_path / "file" / "out" / "result.txt", "x")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_name_that_is_a_folder_is_told_and_the_folder_stays(tmp_path):
    (tmp_path / "result" / "inner").mkdir(parents=True)
    with pytest.raises(DataError, match="result: cannot be written"):
        write_text(tmp_path / "result", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["result"]


def test_json_without_a_meaning_in_json_is_refused_and_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "note.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_a_device_or_pipe_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe: a device or pipe"):
        write_text(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]
