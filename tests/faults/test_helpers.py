"""Helpers that read and write around one engine leave what one process would leave, whatever goes wrong."""

import os
import runpy
import signal
import time
from pathlib import Path

import pytest

from tensorldm.reconstruct.journal import journal_of
from tensorldm.reconstruct.overlap import VARIABLE

CLOSED = ("--method", "minimum-norm")
_models = runpy.run_path(str(Path(__file__).parents[1] / "e2e" / "reconstruct" / "conftest.py"))


@pytest.fixture
def helped(monkeypatch):
    """Two helpers on any device; ``helped(0)``: none."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def set_to(count: int) -> None:
        monkeypatch.setenv(VARIABLE, str(count))

    set_to(2)
    return set_to


def errors(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line.startswith("error:"))


def test_a_cohort_with_a_corrupt_scan_gives_the_bytes_journal_and_words_of_one_process(
    cohort, tmp_path, program, check, helped
):
    """With a model that draws; the page about a scan, which tells seconds, is left out here."""
    results, debris = check
    tree, bundle = cohort(4), _models["untrained"](tmp_path / "bundle", [])
    image = tree / "900002" / "T1w" / "Diffusion" / "data.nii.gz"
    image.write_bytes(image.read_bytes()[:20_000])  # its header is good: it breaks only when its voxels are read
    options = ("--model", bundle, "--samples", 2, "--steps", 2, "--device", "cpu")
    said, entries = {}, {}
    for name, count in (("serial", 0), ("helped", 2)):
        helped(count)
        answer = program("reconstruct", tree, "-o", tmp_path / name, *options)
        assert answer.code == 1, answer.err
        said[name] = errors(answer.err)
        entries[name] = {
            each.name: (each.inputs_sha256, each.written, each.brain, each.summary.warnings, each.summary.median_fa)
            for each in journal_of(tmp_path / name).entries()
        }
    assert results(tmp_path / "serial") == results(tmp_path / "helped")
    assert len(results(tmp_path / "helped")) > 60
    assert said["serial"] == said["helped"]
    assert len(said["helped"]) == 1
    assert str(image) in said["helped"][0]
    assert entries["serial"] == entries["helped"]
    assert debris(tmp_path) == []
    assert (
        f"{tmp_path / 'helped'}: 3 kept, 1 failed"
        in program("reconstruct", tree, "-o", tmp_path / "helped", *options).out
    )


BROKEN = """
import pathlib, tensorldm.reconstruct.files as files, tensorldm.reconstruct.analytic_engine as engines
alive, most = pathlib.Path({alive!r}), pathlib.Path({most!r})
read, write, estimate = files.read_job, files.write_result, engines.AnalyticEngine.estimate
def reading(job, **options):
    (alive / job.files.name).touch()
    return read(job, **options)
def writing(result, naming, **options):
    written = write(result, naming, **options)
    if "900003" in str(naming.image("tensor")):
        raise ZeroDivisionError("in the writer")
    return written
whole_run = files.run_job
def running(job, *arguments, **options):
    try:
        return whole_run(job, *arguments, **options)
    finally:
        (alive / job.files.name).unlink()
calls = []
def estimating(self, scan):
    calls.append(1)
    with most.open("a") as stream:
        print(len(list(alive.iterdir())), file=stream)
    if len(calls) == 4:
        raise RuntimeError("in the engine")
    return estimate(self, scan)
files.read_job, files.write_result = reading, writing
engines.AnalyticEngine.estimate = estimating
import tensorldm.reconstruct.many as many
many.run_job = running
"""


def test_bugs_in_the_writer_and_in_the_engine_end_their_scans_alone_and_two_scans_are_in_memory_at_most(
    cohort, tmp_path, start, program, check, helped
):
    results, debris = check
    tree, out, alive, most = cohort(7), tmp_path / "out", tmp_path / "alive", tmp_path / "most"
    alive.mkdir()
    process = start("reconstruct", tree, *CLOSED, "-o", out, before=BROKEN.format(alive=str(alive), most=str(most)))
    said, wrong = process.communicate()
    assert process.returncode == 1, wrong
    assert f"{out}: 5 done, 2 failed" in said
    writer, engine = sorted(errors(wrong), key=lambda line: "900003" not in line)
    assert "900003" in writer
    assert "unexpected ZeroDivisionError. This is a bug" in writer
    assert "unexpected RuntimeError. This is a bug" in engine
    assert "in the writer" in wrong
    assert "in estimating" in wrong, "the traceback is that of the process where it broke"
    counts = [int(line) for line in most.read_text().split()]
    assert len(counts) == 7
    assert max(counts) <= 2, "one scan a helper"
    assert debris(tmp_path) == []
    helped(0)
    assert program("reconstruct", tree, *CLOSED, "-o", out).code == 0
    assert program("reconstruct", tree, *CLOSED, "-o", tmp_path / "undisturbed").code == 0
    assert results(out) == results(tmp_path / "undisturbed")


SLOW = """
import os, time, tensorldm.reconstruct.files as files, tensorldm.reconstruct.analytic_engine as engines
real, estimate, calls = files.write_result, engines.AnalyticEngine.estimate, []
def slow(*arguments, **options):
    written = real(*arguments, **options)
    time.sleep(1)      # everything is written, nothing has its name yet
    return written
def estimating(self, scan):
    calls.append(1)
    time.sleep(60 if len(calls) == 4 else 0)      # stopped in here, while the writers are at work
    return estimate(self, scan)
files.write_result, engines.AnalyticEngine.estimate = slow, estimating
"""


def test_ctrl_c_while_the_engine_and_a_writer_are_at_work(cohort, tmp_path, start, program, check, helped):
    results, debris = check
    tree, out = cohort(5), tmp_path / "out"
    process = start("reconstruct", tree, *CLOSED, "-o", out, before=SLOW)
    end = time.monotonic() + 180
    while len(list(out.glob(".tensorldm/journal/[!.]*"))) < 2:
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    start_of_end = time.monotonic()
    _, wrong = process.communicate()
    assert process.returncode == 130, wrong
    assert wrong == "stopped; nothing half-written was left behind\n"
    assert time.monotonic() - start_of_end < 30, "it did not wait for the engine"
    assert debris(tmp_path) == []
    helped(0)
    answer = program("reconstruct", tree, *CLOSED, "-o", out)
    assert answer.code == 0
    assert "kept" in answer.out
    assert program("reconstruct", tree, *CLOSED, "-o", tmp_path / "undisturbed").code == 0
    assert results(out) == results(tmp_path / "undisturbed")


def test_an_engine_that_cannot_be_loaded_is_told_for_every_scan_as_by_one_process(cohort, tmp_path, program, helped):
    tree, bundle = cohort(2), _models["untrained"](tmp_path / "bundle", [])
    weights = bundle / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    said = []
    for count in (0, 2):
        helped(count)
        answer = program("reconstruct", tree, "-o", tmp_path / "out", "--model", bundle, "--device", "cpu")
        assert answer.code == 2
        said.append(errors(answer.err))
    assert said[0] == said[1]
    assert len(said[0]) == 2
    assert not (tmp_path / "out").exists()
