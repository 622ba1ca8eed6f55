"""Time and memory of a whole-brain tractogram: python benchmarks/tractography.py TENSOR --mask MASK [--engine dipy].

Prints one line of Markdown: engine, seeds, streamlines, wall-clock and processor seconds, peak memory of this process
and of the largest process it started.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from tensorldm.imaging.mask import read_brain_mask
from tensorldm.imaging.nifti import read_header
from tensorldm.tracts.engine import open_engine
from tensorldm.tracts.settings import TrackSettings
from tensorldm.tracts.tracking import read_field, track_field


def memory_gib(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 2 ** (30 if sys.platform == "darwin" else 20)


def processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tensor", type=Path)
    parser.add_argument("--mask", type=Path, required=True)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--seeds", type=int, default=TrackSettings().seeds)
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    space = read_header(chosen.tensor).space
    mask = read_brain_mask(chosen.mask, space)
    engine, settings = open_engine(chosen.engine), TrackSettings(seeds=chosen.seeds)
    with tempfile.TemporaryDirectory() as folder:
        start, before = time.perf_counter(), processor_seconds()
        field = read_field(chosen.tensor, mask, space=space)
        found = track_field(field, Path(folder) / "whole", settings=settings, engine=engine, workers=chosen.workers)
        seconds, busy = time.perf_counter() - start, processor_seconds() - before
    print("| engine | workers | seeds | streamlines | wall clock, s | processor, s | memory, GiB | of a child, GiB |")
    print("|---|---|---|---|---|---|---|---|")
    own, child = memory_gib(resource.RUSAGE_SELF), memory_gib(resource.RUSAGE_CHILDREN)
    figures = f"{seconds:.0f} | {busy:.0f} | {own:.2f} | {child:.2f}"
    print(f"| {engine.version} | {chosen.workers} | {found.seeds} | {found.streamlines} | {figures} |")


if __name__ == "__main__":
    main()
