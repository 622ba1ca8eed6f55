"""Disks that are full or may not be written to: one sentence, whole results stay, the rest follows later."""

import os
import shutil
import subprocess

import pytest

CLOSED = ("--method", "minimum-norm")


@pytest.fixture
def disk(tmp_path):
    """A small file system in memory, of as many kilobytes as asked for."""
    mounted = []

    def mount(kilobytes: int):
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)]
        if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(words, capture_output=True).returncode:
            pytest.skip("file systems cannot be mounted here: run as a superuser")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder, options):
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def test_a_full_disk(cohort, tmp_path, disk, program, check):
    results, debris = check
    tree = cohort(4)
    assert program("reconstruct", tree, *CLOSED, "-o", tmp_path / "undisturbed").code == 0
    one = sum(path.stat().st_blocks for path in (tmp_path / "undisturbed" / "900001").iterdir()) // 2  # kB
    small = disk(3 * one)
    answer = program("reconstruct", tree, *CLOSED, "-o", small / "out")
    assert answer.code == 1
    assert "No space left on device" in answer.err
    assert ".part" not in answer.err, "the folder that was asked for is named, not the hidden one"
    assert "Traceback" not in answer.err
    assert debris(small) == []
    there = results(small / "out")
    assert {name.partition("/")[0] for name in there} >= {"900001", "900002"}
    assert len({name.partition("/")[0] for name in there}) < 4
    undisturbed = results(tmp_path / "undisturbed")
    assert there.items() <= undisturbed.items(), "what is there is whole"
    remount(small, f"size={10 * one}k")
    assert program("reconstruct", tree, *CLOSED, "-o", small / "out").code == 0
    assert results(small / "out") == undisturbed


def test_a_full_disk_under_prepare(cohort, tmp_path, disk, program, check):
    results, debris = check
    tree = cohort(4)
    assert program("prepare", tree, "--out", tmp_path / "undisturbed").code == 0
    one = (tmp_path / "undisturbed" / "subjects" / "900001.safetensors").stat().st_size // 1024
    small = disk(2 * one + one // 2 + 60)
    answer = program("prepare", tree, "--out", small / "store")
    assert answer.code in (1, 2)
    assert "No space left on device" in answer.out + answer.err
    assert debris(small) == []
    remount(small, f"size={20 * one}k")
    assert program("prepare", tree, "--out", small / "store").code == 0
    assert results(small / "store") == results(tmp_path / "undisturbed")


@pytest.mark.parametrize("there", [True, False], ids=["an older result stays", "a new folder"])
def test_an_output_that_may_not_be_written_to(there, cohort, tmp_path, disk, program, check):
    results, _ = check
    tree, small = cohort(2), disk(4000)
    if there:
        assert program("reconstruct", tree, *CLOSED, "-o", small / "out").code == 0
    before = results(small)
    remount(small, "ro")
    answer = program("reconstruct", tree, *CLOSED, "-o", small / "out", "--method", "ade")
    assert answer.code == 2
    assert answer.err.startswith(f"error: {small / 'out'}: cannot be written")
    assert "Traceback" not in answer.err
    assert results(small) == before
    remount(small, "rw")
    assert program("reconstruct", tree, *CLOSED, "-o", small / "out", "--method", "ade").code == 0
