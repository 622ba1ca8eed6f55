"""A bad subject among many, and workers that die."""

import os
import signal
import threading
import time
from pathlib import Path

import nibabel
import numpy as np
import pytest

CLOSED = ("--method", "minimum-norm")
COARSE = ("shape=[40,48,40]", "voxel_mm=[4.0,4.0,4.0]", "protocol.b0s=[2,2]", "protocol.directions=[12,12]")
NAMES = [f"{900001 + number}" for number in range(50)]


def test_a_corrupt_subject_among_fifty(cohort, tmp_path, program, check):
    results, debris = check
    tree, out, bad = cohort(50), tmp_path / "out", "900023"
    image = tree / bad / "T1w" / "Diffusion" / "data.nii.gz"
    whole = image.read_bytes()
    image.write_bytes(whole[: len(whole) // 2])  # its header is good: it breaks only when its voxels are read
    answer = program("reconstruct", tree, *CLOSED, "-o", out)
    assert answer.code == 1
    (line,) = [line for line in answer.err.splitlines() if line.startswith("error:")]
    assert str(image) in line
    assert sorted(path.name for path in out.glob("[!.]*")) == [name for name in NAMES if name != bad]
    assert f"{out}: 49 done, 1 failed" in answer.out
    assert debris(tmp_path) == []
    others = results(out)
    image.write_bytes(whole)
    answer = program("reconstruct", tree, *CLOSED, "-o", out)
    assert (answer.code, f"{out}: 1 done, 49 kept" in answer.out) == (0, True)
    assert others.items() <= results(out).items()
    fa = nibabel.load(out / bad / "fa.nii.gz").get_fdata()
    assert 0.2 < np.median(fa[fa > 0]) < 0.8


def _kill_a_busy_worker(tmp_path, killed, unfinished="**/.out.*.part"):
    """As soon as a worker is writing a subject, it is killed."""
    from tensorldm.work import cluster  # noqa: F401  loaded before the race begins

    end = time.monotonic() + 180
    while time.monotonic() < end and not killed:
        for folder in tmp_path.glob(unfinished):
            for process in _writers(folder):
                os.kill(process, signal.SIGKILL)
                killed.append(process)
                return
        time.sleep(0.002)


def _writers(folder):
    """Processes other than this one that hold a file below the folder open."""
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) != os.getpid():
            try:
                opened = [each.readlink() for each in (process / "fd").iterdir()]
            except OSError:
                continue
            if any(path.is_relative_to(folder) for path in opened):
                yield int(process.name)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to find the worker that is writing")
def test_a_worker_killed_in_the_middle_of_a_subject(cohort, tmp_path, program, check, monkeypatch):
    results, debris = check
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tree, out = cohort(4), tmp_path / "out"
    assert program("reconstruct", tree, *CLOSED, "-o", tmp_path / "undisturbed").code == 0
    killed = []
    killer = threading.Thread(target=_kill_a_busy_worker, args=(tmp_path, killed))
    killer.start()
    answer = program("reconstruct", tree, *CLOSED, "-o", out, "--workers", 2)
    killer.join()
    assert killed, "no worker was caught writing"
    assert answer.code == 0, answer.err
    assert results(out) == results(tmp_path / "undisturbed"), "the same bytes as one process gives"
    assert debris(tmp_path) == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to find the worker that is writing")
def test_a_worker_killed_in_the_middle_of_a_virtual_subject(tmp_path, program, check):
    results, debris = check
    wanted = ("--subjects", 3, *(word for each in COARSE for word in ("--set", each)))
    assert program("cohort", "--out", tmp_path / "undisturbed", *wanted).code == 0
    killed = []
    killer = threading.Thread(target=_kill_a_busy_worker, args=(tmp_path, killed, "out/.sub-*.part"))
    killer.start()
    answer = program("cohort", "--out", tmp_path / "out", *wanted, "--workers", 2)
    killer.join()
    assert killed, "no worker was caught writing"
    assert answer.code == 0, answer.err
    assert results(tmp_path / "out") == results(tmp_path / "undisturbed"), "the same bytes as one process gives"
    assert debris(tmp_path) == []
