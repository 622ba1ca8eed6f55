"""The scripts of the how-tos, run as a cluster would run them; training's are in ``tests/integration/training``."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = sorted((REPOSITORY / "docs" / "howto" / "scripts").glob("*.slurm"))
_prepare = runpy.run_path(str(REPOSITORY / "tests" / "integration" / "prepare" / "conftest.py"))
scan = _prepare["scan"]
SRUN = runpy.run_path(str(REPOSITORY / "tests" / "integration" / "training" / "test_elastic.py"))["SRUN"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_valid_shell_and_is_explained_in_the_how_to(path):
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0
    assert os.access(path, os.X_OK)
    assert f"scripts/{path.name}" in (REPOSITORY / "docs" / "howto" / "slurm.md").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_asks_only_for_options_that_the_program_has(path):
    for verb in re.findall(r"tensorldm (?:-m tensorldm )?(\w+) ", path.read_text()):
        source = (REPOSITORY / "src" / "tensorldm" / "cli" / f"{verb}.py").read_text()
        command = path.read_text().split(f"tensorldm {verb}", 1)[1]
        for option in re.findall(r"--([a-z-]+)", command.split("\n\n")[0]):
            assert option in source or option.replace("-", "_") in source or f'"--{option}"' in source, option


@pytest.mark.slow
def test_a_dataset_is_reconstructed_by_the_workers_that_the_script_starts(scan, tmp_path):
    pytest.importorskip("distributed")
    study, out, commands = tmp_path / "study", tmp_path / "out", tmp_path / "bin"
    for subject in ("01", "02"):
        scan.write_bids(study, subject, "1")
    (study / "dataset_description.json").write_text('{"Name": "three heads", "BIDSVersion": "1.10.0"}')
    scan.write_bids(study, "03", "1")
    (study / "sub-03/ses-1/dwi/sub-03_ses-1_dwi.bval").write_text("one scan that cannot be used")
    commands.mkdir()
    (commands / "srun").write_text(SRUN)
    (commands / "srun").chmod(0o755)
    path = os.pathsep.join([str(commands), str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", str(REPOSITORY / "docs/howto/scripts/bids.slurm"), "--method", "minimum-norm"],
        env={
            **os.environ,
            "PATH": path,
            "SLURM_NTASKS": "1",
            "SLURM_CPUS_PER_TASK": "1",
            "OMP_NUM_THREADS": "1",
            "BIDS": str(study),
            "OUT": str(out),
            "SCRATCH": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 1, ended.stderr
    assert len(list(out.rglob("*_param-tensor_dwimap.nii.gz"))) == 2
    table = (out / "derivatives" / "group" / "measures.tsv").read_text().splitlines()
    assert [line.split("\t")[2] for line in table] == ["state", "done", "done", "failed"]
    assert not list(tmp_path.glob("tensorldm-dask-*")), "the meeting point is cleared away"
