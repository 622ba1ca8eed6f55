"""However a run ends, nothing is half-written or lost, and the same command again gives what a whole run gives."""

import os
import signal
import time

import pytest

CLOSED = ("--method", "minimum-norm")
CRASH = """
import os, pathlib
real, left = pathlib.Path.{call}, iter(range({after}, -1, -1))
def cut(self, *arguments):
    if next(left) == 0:
        os._exit(9)    # the power is cut: no handler runs, nothing is cleaned up
    return real(self, *arguments)
pathlib.Path.{call} = cut
"""


@pytest.mark.parametrize(
    ("call", "after"),
    [("replace", 25), ("rename", 0)],
    ids=["between the writing and the renaming of a file", "before the first result appears"],
)
def test_a_power_cut(call, after, cohort, tmp_path, start, program, check):
    results, debris = check
    tree, out = cohort(2), tmp_path / "out"
    assert program("reconstruct", tree, *CLOSED, "-o", tmp_path / "undisturbed").code == 0
    process = start("reconstruct", tree, *CLOSED, "-o", out, before=CRASH.format(call=call, after=after))
    process.communicate()
    assert process.returncode == 9
    assert debris(tmp_path), "the power was cut in the middle of something"
    for path in out.rglob("tensor.nii.gz") if out.exists() else ():
        wanted = {each.name for each in (tmp_path / "undisturbed" / path.parent.name).iterdir()}
        assert {each.name for each in path.parent.iterdir()} == wanted, "a subject that is visible is whole"
    assert program("reconstruct", tree, *CLOSED, "-o", out).code == 0
    assert results(out) == results(tmp_path / "undisturbed")
    assert debris(tmp_path) == []


SLOW = """
import time
import tensorldm.reconstruct.files as files
real = files.write_result
def slow(*arguments, **options):
    written = real(*arguments, **options)
    time.sleep({seconds})    # everything is written, nothing has its name yet
    return written
files.write_result = slow
"""


def wait_for(condition, *, seconds=180):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    ("number", "workers"),
    [(signal.SIGINT, 1), (signal.SIGINT, 2), (signal.SIGTERM, 1)],
    ids=["Ctrl-C", "Ctrl-C with two workers", "a batch system's SIGTERM"],
)
def test_ctrl_c_in_the_middle_of_a_cohort(number, workers, cohort, tmp_path, start, program, check):
    results, debris = check
    tree, out = cohort(4), tmp_path / "out"
    process = start("reconstruct", tree, *CLOSED, "-o", out, "--workers", workers, before=SLOW.format(seconds=1))
    wait_for(lambda: list(out.glob(".tensorldm/journal/[!.]*")))
    os.killpg(process.pid, number)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert errors.endswith("stopped; nothing half-written was left behind\n")
    assert debris(tmp_path) == []
    answer = program("reconstruct", tree, *CLOSED, "-o", out)
    assert answer.code == 0
    assert "kept" in answer.out
    assert program("reconstruct", tree, *CLOSED, "-o", tmp_path / "undisturbed").code == 0
    assert results(out) == results(tmp_path / "undisturbed")


def test_two_runs_on_one_folder(cohort, tmp_path, start, program, check):
    results, debris = check
    tree, out = cohort(2), tmp_path / "out"
    assert program("reconstruct", tree, *CLOSED, "-o", tmp_path / "undisturbed").code == 0
    process = start("reconstruct", tree, *CLOSED, "-o", out, before=SLOW.format(seconds=3))
    wait_for(lambda: debris(tmp_path))
    answer = program("reconstruct", tree, *CLOSED, "-o", out, "--method", "ade")
    assert (answer.code, f"another run is writing there (process {process.pid} on" in answer.err) == (2, True)
    process.communicate()
    assert process.returncode == 0
    assert results(out) == results(tmp_path / "undisturbed")
    assert debris(tmp_path) == []
