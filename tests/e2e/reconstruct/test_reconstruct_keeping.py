"""``tensorldm reconstruct`` replaces its own results of the same scan, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    """Drawing is most of the time of a small scan."""
    monkeypatch.setattr("tensorldm.cli.reconstruct.draw", None)
    monkeypatch.setattr("tensorldm.cli.reconstruct.describe", None)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def series(scan, tmp_path):
    """Two scans with a mask, of the same name in two folders."""
    paths = []
    for name, factor in (("anna", 1.0), ("bert", 1.5)):
        tree = replace(scan, data=scan.data * factor).write_hcp(tmp_path / name)
        paths.append(tree / "T1w" / "Diffusion" / "data.nii.gz")
    return paths


def test_the_result_of_another_scan_is_not_replaced_unless_asked_for(series, tmp_path, program):
    anna, bert = series
    out = tmp_path / "out"
    assert program("reconstruct", anna, "-o", out).code == 0
    before = contents(out)
    answer = program("reconstruct", bert, "-o", out)
    assert answer.code == 2
    for word in ("result of another scan", str(anna), "--out", "--redo"):
        assert word in answer.err
    assert contents(out) == before
    assert program("reconstruct", bert, "-o", out, "--redo").code == 0
    assert contents(out)[out / "tensor.nii.gz"] != before[out / "tensor.nii.gz"]


def test_a_relative_name_does_not_pass_for_another_file_of_that_name(series, tmp_path, program, monkeypatch):
    for path, code in zip(series, (0, 2), strict=True):
        monkeypatch.chdir(path.parent)
        assert program("reconstruct", path.name, "-o", tmp_path / "out").code == code


def test_the_same_scan_is_done_again_with_other_settings_mended_or_moved(series, tmp_path, program, scan):
    anna, bert = series
    out = tmp_path / "out"
    assert program("reconstruct", anna, "-o", out).code == 0
    assert program("reconstruct", anna, "-o", out, "--method", "ade").code == 0
    replace(scan, data=scan.data * 2).write_hcp(tmp_path / "anna")
    assert program("reconstruct", anna, "-o", out).code == 0
    bert.write_bytes(anna.read_bytes())
    assert program("reconstruct", bert, "-o", out, "--method", "ade").code == 0


@pytest.mark.parametrize("name", ["fa.nii.gz", "mask.nii.gz", "tensor.json", "overview.png"])
def test_a_file_that_somebody_else_wrote_is_kept(name, series, tmp_path, program):
    theirs = tmp_path / "out" / name
    theirs.parent.mkdir()
    theirs.write_bytes(b"theirs")
    answer = program("reconstruct", series[0], "-o", tmp_path / "out", "--redo")
    assert answer.code == 2
    assert f"{theirs}: this file is there" in answer.err
    assert contents(tmp_path / "out") == {theirs: b"theirs"}


def test_other_files_in_the_folder_are_no_obstacle(series, tmp_path, program):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    for _ in range(2):
        assert program("reconstruct", series[0], "-o", tmp_path / "out", "--redo").code == 0
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_what_was_cut_short_while_it_was_moved_is_finished_by_the_same_command(series, tmp_path, program, monkeypatch):
    out, replace_file = tmp_path / "out", Path.replace
    out.mkdir()

    def cut_short(self, target):
        if target == out / "l1.nii.gz":
            raise KeyboardInterrupt
        return replace_file(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut_short)
        assert program("reconstruct", series[0], "-o", out).code == 130
    assert (out / "fa.nii.gz").exists()
    assert not (out / "tensor.nii.gz").exists()
    assert program("reconstruct", series[0], "-o", out).code == 0
    assert (out / "tensor.nii.gz").exists()
