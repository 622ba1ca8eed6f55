"""A BIDS cohort on workers that SLURM starts and ends, with dask-jobqueue; PBSCluster, SGECluster, LSFCluster go alike.

    python jobqueue.py BIDS_DIR OUT --jobs 20 --directive=--gpus=1 --model BUNDLE --samples 4

Run it on a login node or in a small job; it ends when the cohort is done. Options it does not know go to tensorldm.
"""

import argparse
import subprocess
import sys

from dask_jobqueue import SLURMCluster


def main() -> int:
    """Ask for jobs, run the cohort on them, give them back."""
    parser = argparse.ArgumentParser(description="A BIDS cohort on SLURM, one Dask worker a job.")
    parser.add_argument("bids_dir")
    parser.add_argument("out")
    parser.add_argument("--jobs", type=int, default=10, help="at most so many workers at a time")
    parser.add_argument("--queue", help="SLURM partition")
    parser.add_argument("--memory", default="8GB", help="of one worker: a scan, its working copy and the model")
    parser.add_argument("--walltime", default="04:00:00")
    parser.add_argument("--directive", action="append", default=[], help="a line for #SBATCH, such as --gpus=1")
    words, options = parser.parse_known_args()
    with SLURMCluster(
        cores=1,
        processes=1,
        memory=words.memory,
        walltime=words.walltime,
        queue=words.queue,
        job_extra_directives=words.directive,
    ) as cluster:
        cluster.adapt(minimum_jobs=1, maximum_jobs=words.jobs)
        command = [sys.executable, "-m", "tensorldm", "bids", words.bids_dir, words.out, "participant"]
        command += ["--scheduler", cluster.scheduler_address, *options]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
