"""Load: many small virtual subjects through ``tensorldm bids``, subjects a minute and memory over time.

    python benchmarks/load.py --subjects 200 --workers 1 2 --out load.json [--pictures]

Eight virtual heads are made with ``tensorldm cohort`` and scanned again and again with other noise. Memory is what the
program and all its workers hold of their own (anonymous pages: libraries that are shared with other programs are left
out, since those come and go); it is flat when the last quarter of the run holds no more than the second. ``--bundle``
measures a model instead of the closed form.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import nibabel
import numpy as np

HEADS = 8
SMALL = ("shape=[32,38,32]", "voxel_mm=[6.0,6.0,6.0]", "protocol.directions=[12,12]", "protocol.b0s=[2,2]")
EVERY_SECONDS = 0.5
WITHOUT_PICTURES = "import tensorldm.cli.bids as verb; verb.draw = verb.describe = None"
RUN = "import sys; {before}; from tensorldm.cli.main import run; sys.argv = {words!r}; run()"


def make_cohort(root: Path, subjects: int) -> None:
    """Raw scans in BIDS form; a few heads, as many scans as asked for."""
    heads = min(HEADS, subjects)
    options = [word for setting in SMALL for word in ("--set", setting)]
    command = [sys.executable, "-m", "tensorldm", "cohort", "--out", str(root), "--subjects", str(heads), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    sources = sorted(root.glob("sub-*"))
    for number in range(heads, subjects):
        _scan_again(sources[number % heads], root / f"sub-{number + 1:04d}", seed=number)


def _scan_again(source: Path, target: Path, *, seed: int) -> None:
    shutil.copytree(source, target)
    for path in sorted((target / "dwi").iterdir()):
        path.rename(path.with_name(path.name.replace(source.name, target.name)))
    (image,) = (target / "dwi").glob("*.nii.gz")
    series = nibabel.load(image)
    data = series.get_fdata(dtype=np.float32)
    noise = np.random.default_rng(seed).normal(scale=0.02 * data[..., 0].max(), size=data.shape)
    nibabel.save(nibabel.Nifti1Image(np.abs(data + noise).astype(np.float32), series.affine), image)


def measure(root: Path, out: Path, *, workers: int, pictures: bool, options: list[str]) -> dict[str, float]:
    """Run the participant level; how long it took, and what memory it held."""
    words = ["tensorldm", "bids", str(root), str(out), "participant", "--workers", str(workers), *options]
    code = RUN.format(before="" if pictures else WITHOUT_PICTURES, words=words)
    start, samples = time.monotonic(), []
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    while program.poll() is None:
        done = sum(1 for _ in (out / ".tensorldm" / "journal").glob("[!.]*.json"))
        samples.append((time.monotonic() - start, done, sum(map(_memory, _family(program.pid)))))
        time.sleep(EVERY_SECONDS)
    if program.returncode != 0:
        raise SystemExit(f"tensorldm bids ended with exit code {program.returncode}")
    return _summary(samples, count=len(list(root.glob("sub-*"))), seconds=time.monotonic() - start)


def _summary(samples: list[tuple[float, int, int]], *, count: int, seconds: float) -> dict[str, float]:
    working = [(moment, done, memory) for moment, done, memory in samples if 0 < done < count]
    quarters = np.array_split(np.array([memory for _, _, memory in working], dtype=np.float64) / 2**20, 4)
    second, last = float(np.median(quarters[1])), float(np.median(quarters[3]))
    (begin, first, _), (end, final, _) = working[0], working[-1]
    return {
        "subjects": count,
        "seconds": round(seconds, 1),
        "subjects_per_minute": round(60 * (final - first) / (end - begin), 1),
        "peak_mib": round(max(memory for *_, memory in samples) / 2**20),
        "second_quarter_mib": round(second),
        "last_quarter_mib": round(last),
        "growth_percent": round(100 * (last / second - 1), 1),
    }


def _family(process: int) -> Iterator[int]:
    """A process and all that it started."""
    yield process
    for task in Path(f"/proc/{process}/task").glob("*"):
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


def _memory(process: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("Anonymous:")).split()[1])
    return 0


def main() -> None:
    """Measure each number of workers on the same cohort."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", type=int, default=200)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pictures", action="store_true", help="overview and report of every subject too")
    parser.add_argument("--bundle", help="a trained model")
    parser.add_argument("--out", type=Path, required=True)
    words = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    options = ["--model", words.bundle] if words.bundle else ["--method", "minimum-norm"]
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        start = time.monotonic()
        make_cohort(Path(scratch) / "raw", words.subjects)
        print(f"{words.subjects} scans made in {time.monotonic() - start:.0f} s; load {os.getloadavg()[0]:.1f}")
        for workers in words.workers:
            out = Path(scratch) / f"out{workers}"
            found[workers] = measure(
                Path(scratch) / "raw", out, workers=workers, pictures=words.pictures, options=options
            )
            found[workers]["load_average"] = round(os.getloadavg()[0], 1)
            print(f"{workers} workers: {json.dumps(found[workers])}")
    words.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
