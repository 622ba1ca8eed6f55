"""Several processes by the scripts of the how-to: started by SLURM or torchrun, whole or with a rank killed on the way.

SLURM itself is played by a few lines of shell: ``srun`` starts the tasks with the variables that SLURM gives them.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tensorldm.bundle import WEIGHTS
from tensorldm.training.runlog import read_log

SCRIPTS = Path(__file__).parents[3] / "docs" / "howto" / "scripts"
SETTINGS = [
    'data.cohort_set=["shape=[16,16,16]","voxel_mm=[11,11,11]","protocol.directions=[12,12]"]',
    "data.subjects=0",
    "hardware.accelerator=cpu",
    "validation.subjects=0",
    "keep.every=2",
    "keep.log_every=1",
    "stages.1.batch_size=1",
    "stages.1.steps=4",
]
KILLED_AT = 3
SRUN = """#!/bin/bash
while [ "${1#--}" != "$1" ]; do shift; done
for task in $(seq 0 $((SLURM_NTASKS - 1))); do
    SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NODEID=0 "$@" &
    tasks="$tasks $!"
done
worst=0
for task in $tasks; do
    wait "$task" || { code=$?; [ "$code" -gt "$worst" ] && worst=$code; }
done
exit "$worst"
"""
KILLS_THE_SECOND_RANK_ONCE = f"""
import os, signal
if os.environ.get("RANK") == "1" and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
    from tensorldm.training.runlog import RunLog
    advance = RunLog.advance

    def die(log, step, *, steps):
        if step == {KILLED_AT}:
            os.kill(os.getpid(), signal.SIGKILL)
        advance(log, step, steps=steps)

    RunLog.advance = die
"""


@pytest.fixture
def cluster(tmp_path):
    """Runs a script as ``sbatch`` would on one node; the environment is SLURM's."""
    commands = tmp_path / "bin"
    commands.mkdir()

    def program(name: str, text: str) -> None:
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)

    program("srun", SRUN)
    program("scontrol", f'#!/bin/bash\necho "$@" >> {tmp_path}/scontrol\n')

    def submit(script: str, *, tasks: int, **environment: str) -> subprocess.CompletedProcess[str]:
        slurm = {
            "SLURM_NTASKS": str(tasks),
            "SLURM_NTASKS_PER_NODE": str(tasks),
            "SLURM_NNODES": "1",
            "SLURM_NODELIST": "127.0.0.1",
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NAME": "train",
            "SLURM_CPUS_PER_TASK": "1",
            "MASTER_PORT": str(_free_port()),
        }
        path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
        overrides = [word for setting in SETTINGS for word in ("--set", setting)]
        common = {"PATH": path, "OMP_NUM_THREADS": "1", "CONFIG": "smoke", "STORE": "cohort:procedural"}
        return subprocess.run(
            ["bash", str(SCRIPTS / script), "--stages", "1", *overrides],
            env={**os.environ, **slurm, **common, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    submit.program = program
    submit.requests = tmp_path / "scontrol"
    return submit


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_the_run_ends_with_the_weights_of_an_undisturbed_one(cluster, tmp_path):
    ended = cluster("train.slurm", tasks=2, RUN=str(tmp_path / "unbroken"))
    assert ended.returncode == 0, ended.stderr

    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(KILLS_THE_SECOND_RANK_ONCE)
    ended = cluster(
        "train-elastic.slurm",
        tasks=1,
        RUN=str(tmp_path / "killed"),
        RESTARTS="1",
        GPUS="2",
        HEAD="127.0.0.1",
        PORT=str(_free_port()),
        PYTHONPATH=str(tmp_path / "site"),
    )
    assert ended.returncode == 0, ended.stderr

    steps = [record["step"] for record in read_log(tmp_path / "killed") if record["event"] == "train"]
    assert steps[-2:] == [3, 4], "the second start goes on from the checkpoint of step 2"
    assert steps[:2] == [1, 2]
    assert "exitcode: -9" in ended.stderr
    unbroken, killed = (tmp_path / run / "stage1" / "bundle" / WEIGHTS for run in ("unbroken", "killed"))
    assert killed.read_bytes() == unbroken.read_bytes()
    assert not list((tmp_path / "killed").rglob("*.part"))


def test_a_job_that_meets_its_time_limit_queues_itself_again_and_one_that_fails_does_not(cluster, tmp_path):
    for code, left, requests in ((143, 0, "requeue 4711\n"), (2, 2, ""), (0, 0, "")):
        cluster.requests.unlink(missing_ok=True)
        cluster.program("srun", f"#!/bin/bash\nexit {code}\n")
        assert cluster("train.slurm", tasks=2, RUN=str(tmp_path)).returncode == left
        assert (cluster.requests.read_text() if cluster.requests.exists() else "") == requests


def test_a_script_without_its_folders_says_which_one_is_missing(cluster):
    assert "set RUN to the folder of the run" in cluster("train.slurm", tasks=1, RUN="").stderr
    assert "set STORE to the folder" in cluster("train-elastic.slurm", tasks=1, RUN="x", STORE="").stderr
