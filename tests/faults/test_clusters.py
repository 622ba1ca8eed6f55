"""A Dask cluster that runs already: the same bytes as one process gives; a scheduler that is lost and started anew."""

import os
import runpy
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")
SCRIPTS = Path(__file__).parents[2] / "docs" / "howto" / "scripts"
_models = runpy.run_path(str(Path(__file__).parents[1] / "e2e" / "reconstruct" / "conftest.py"))


@pytest.fixture
def dask(tmp_path):
    """Start a scheduler on a port, with one worker; both end with the test, or when they are killed."""
    running, place = [], tmp_path / "elsewhere"
    place.mkdir()

    def begin(kind, *words):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *words]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # Started in a folder of its own, as on another machine.
        running.append(subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=place, **quiet))
        return running[-1]

    def start(port):
        address = f"tcp://127.0.0.1:{port}"
        scheduler = begin("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", "--no-jupyter")
        begin("worker", address, "--nthreads", "2", "--no-nanny", "--no-dashboard", "--death-timeout", "60")
        return address, scheduler

    yield start
    for process in running:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


def test_a_running_cluster_gives_the_same_bytes_and_a_lost_scheduler_loses_nothing(
    cohort, tmp_path, dask, start, program, check, monkeypatch
):
    results, debris = check
    bundle = _models["untrained"](tmp_path / "bundle", [])
    tree, out, port = cohort(6), tmp_path / "out", free_port()
    options = ("--model", bundle, "--samples", 1, "--steps", 1, "--device", "cpu")
    assert program("reconstruct", tree, "-o", tmp_path / "undisturbed", *options).code == 0

    address, scheduler = dask(port)
    process = start("reconstruct", tree, "-o", out, *options, "--scheduler", address)
    end = time.monotonic() + 180
    while not (done := list(out.glob(".tensorldm/journal/[!.]*"))):
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    scheduler.kill()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (2, False), errors
    assert f"error: {address}: the scheduler went away" in errors
    there = results(out)
    assert there.items() <= results(tmp_path / "undisturbed").items(), "what is there is whole"
    assert len({name.partition("/")[0] for name in there}) >= len(done)

    address, _ = dask(port)
    answer = program("reconstruct", tree, "-o", out, *options, "--scheduler", address)
    assert answer.code == 0, answer.err
    assert "kept" in answer.out
    assert results(out) == results(tmp_path / "undisturbed")

    monkeypatch.chdir(tmp_path)  # what the user types is seen from where the user is, not from the worker's folder
    answer = program("evaluate", "undisturbed", "out", "--out", "table.csv", "--scheduler", address)
    assert answer.code == 0, answer.err
    assert (tmp_path / "table.csv").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert debris(tmp_path) == []


SBATCH = """#!/bin/sh
cp "$1" "{jobs}.sh"    # as sbatch does: its caller removes the file
setsid sh "{jobs}.sh" >/dev/null 2>&1 &
echo $! >> {jobs}
echo Submitted batch job $!
"""


def test_the_jobqueue_script_runs_a_cohort_on_jobs_of_a_batch_system(clean, tmp_path):
    """SLURM itself is played by two small scripts: a job is a process here."""
    pytest.importorskip("dask_jobqueue")
    raw, jobs = tmp_path / "raw", tmp_path / "jobs"
    clean.write_bids(raw, "01", "a")
    clean.write_bids(raw, "02", "a")
    (raw / "dataset_description.json").write_text('{"Name": "two heads", "BIDSVersion": "1.10.0"}')
    (tmp_path / "bin").mkdir()
    for name, text in (("sbatch", SBATCH.format(jobs=jobs)), ("scancel", '#!/bin/sh\nkill -- "-$1"\n')):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    command = [sys.executable, SCRIPTS / "jobqueue.py", raw, tmp_path / "out", "--jobs", "1", "--memory", "2GB"]
    command += ["--directive=--gpus=1", "--method", "ade"]
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    try:
        answer = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    finally:
        for job in jobs.read_text().split() if jobs.exists() else ():
            subprocess.run(["kill", "-9", "--", f"-{job}"], capture_output=True)
    assert answer.returncode == 0, answer.stderr
    assert len(list((tmp_path / "out").rglob("*_param-FA_dwimap.nii.gz"))) == 2
