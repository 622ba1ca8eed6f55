"""A queue of whole-brain scans on one device: subjects a minute, seconds by part, and how busy the device is.

    python benchmarks/gpu_queue.py --scans 50 --device cuda --serial 10 --out queue.json [--bundle FOLDER]
    python benchmarks/gpu_queue.py --scans 6 --device cpu --shape 30 36 30 --voxel 6 --helpers 2 --serial 6 --out q.json

One virtual head is written --scans times with other noise, four volumes each, with its mask; then all go through
``tensorldm reconstruct``. ``--serial N`` does the first N again, one after another in one process, in the same run.
``device_busy_share`` is the time inside the network over the time from the first scan's end to the last's; the GPU's
own figure is what nvidia-smi says every half second in that time. Other options (--samples 4) go to the program.
Beside torch it needs numpy, scipy, nibabel, pydantic, typer, rich, safetensors, einops and jaxtyping; without
matplotlib there are no pictures, and ``pictures`` is false.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.scanner import brain_signal
from tensorldm.imaging.gradient_files import write_fsl
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.nifti import write_mask, write_volume
from tensorldm.imaging.volume import Space, Volume
from tensorldm.reconstruct.overlap import VARIABLE, cores_here

TILTED = ((0.0, 0.0, 0.0), (0.98, 0.17, 0.10), (-0.12, 0.97, 0.21), (0.15, -0.19, 0.97))
"""b=0, and three directions about ten degrees off the axes, as scanners give them."""
BVAL, SNR, SCANNER_UNITS = 1000.0, 30.0, 400.0
GPU_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits", "-lms", "500")


def make_queue(root: Path, count: int, *, shape: tuple[int, int, int], voxel_mm: float, with_mask: bool) -> list[Path]:
    """The same head in every scan, each with its own noise over the whole field of view."""
    source = ProceduralSource("test", count=1, shape=shape, voxel_size=(voxel_mm,) * 3, bundles=())
    head = source.load(source.names[0])
    directions = torch.nn.functional.normalize(torch.tensor(TILTED), dim=-1)
    bvals = torch.tensor([0.0, BVAL, BVAL, BVAL])
    clean = torch.zeros(*shape, len(bvals))
    clean[head.mask] = SCANNER_UNITS * brain_signal(head, bvals, directions).float()
    space = Space(shape, np.diag([voxel_mm, voxel_mm, voxel_mm, 1.0]))
    table = GradientTable(bvals.double().numpy(), directions.double().numpy())

    def write(number: int) -> Path:
        random = torch.Generator().manual_seed(number)
        real, imaginary = (SCANNER_UNITS / SNR * torch.randn(clean.shape, generator=random) for _ in range(2))
        image = root / f"scan{number:03d}" / "dwi.nii.gz"
        write_volume(image, Volume(torch.hypot(clean + real, imaginary).numpy(), space))
        write_fsl(image.with_name("dwi.bval"), image.with_name("dwi.bvec"), gradients=table, space=space)
        if with_mask:
            write_mask(image.with_name("mask.nii.gz"), head.mask.numpy(), space=space)
        return image

    with ThreadPoolExecutor(cores_here()) as pool:
        return list(pool.map(write, range(count)))


class GpuWatch:
    """What nvidia-smi says while the block runs; nothing where there is no such program."""

    def __enter__(self) -> "GpuWatch":
        self.samples: list[tuple[float, float, float]] = []
        self.program = None
        if shutil.which(GPU_QUERY[0]):
            self.program = subprocess.Popen(GPU_QUERY, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._listen, daemon=True).start()
        return self

    def _listen(self) -> None:
        for line in self.program.stdout:
            busy, memory = line.split(",")[:2]
            self.samples.append((time.time(), float(busy), float(memory)))

    def __exit__(self, *_: object) -> None:
        if self.program is not None:
            self.program.terminate()
            self.program.wait()

    def figures(self, begin: float, end: float) -> dict:
        inside = [(busy, memory) for moment, busy, memory in self.samples if begin <= moment <= end]
        if not inside:
            return {}
        busy = [each for each, _ in inside]
        return {
            "gpu_percent_mean": round(float(np.mean(busy)), 1),
            "gpu_share_of_samples_above_0": round(float(np.mean([each > 0 for each in busy])), 3),
            "gpu_samples": len(inside),
            "gpu_mib_peak": max(memory for _, memory in inside),
        }


def measure(images: list[Path], out: Path, *, helpers: int | None, options: list[str]) -> dict:
    """Run the program over the queue."""
    environment = dict(os.environ)
    environment.pop(VARIABLE, None)
    if helpers is not None:
        environment[VARIABLE] = str(helpers)
    command = [sys.executable, "-m", "tensorldm", "reconstruct", *map(str, images), "-o", str(out), *options]
    begin = time.time()
    with GpuWatch() as gpu:
        answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.time()
    if answer.returncode != 0:
        raise SystemExit(f"tensorldm reconstruct ended with exit code {answer.returncode}:\n{answer.stdout[-3000:]}")
    return summary(out, begin, end, gpu)


def summary(out: Path, begin: float, end: float, gpu: GpuWatch) -> dict:
    """From the journal, whose entries are written as scans end."""
    entries = sorted((out / ".tensorldm" / "journal").glob("[!.]*.json"), key=lambda path: path.stat().st_mtime)
    ends = [path.stat().st_mtime for path in entries]
    parts: dict[str, list[float]] = {}
    for path in entries:
        for part, seconds in json.loads(path.read_text())["summary"]["seconds"]:
            parts.setdefault(part, []).append(seconds)
    device = [seconds for part, times in parts.items() if part.startswith("reconstructing") for seconds in times]
    window = max(ends[-1] - ends[0], 1e-9)
    inside = sum(device) * (len(ends) - 1) / len(ends)
    return {
        "scans": len(entries),
        "seconds": round(end - begin, 1),
        "seconds_until_the_first": round(ends[0] - begin, 1),
        "subjects_per_minute": round(60 * len(entries) / (end - begin), 1),
        "subjects_per_minute_after_the_first": round(60 * (len(ends) - 1) / window, 1),
        "device_seconds_a_scan": round(float(np.median(device)), 3),
        "device_busy_share": round(inside / window, 3),
        "seconds_by_part": {part: round(float(np.mean(times)), 3) for part, times in parts.items()},
        **gpu.figures(ends[0], ends[-1]),
    }


def compare(one: Path, other: Path) -> str:
    """How many files of the shorter run are the same bytes in both; the page tells seconds, so it is left out."""
    files = [path.relative_to(other) for path in sorted(other.glob("scan*/*")) if path.suffix != ".html"]
    same = sum(_hash(one / path) == _hash(other / path) for path in files)
    return f"{same} of {len(files)}"


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    """Measure the overlapped way and, if wanted, the serial one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=50)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--bundle", help="a trained model; by default the one that ships")
    parser.add_argument("--shape", type=int, nargs=3, default=[91, 109, 91])
    parser.add_argument("--voxel", type=float, default=2.0, help="mm")
    parser.add_argument("--helpers", type=int, help="processes that read and write; by default the program's choice")
    parser.add_argument("--serial", type=int, nargs="?", const=10, default=0, help="scans that are done serially too")
    parser.add_argument("--find-brain", action="store_true", help="give no masks: brains are searched, with DIPY")
    parser.add_argument("--keep", type=Path, help="folder for scans and results, which are deleted otherwise")
    parser.add_argument("--out", type=Path, required=True)
    words, options = parser.parse_known_args()
    options += ["--device", words.device, *(["--model", words.bundle] if words.bundle else [])]
    found: dict = {
        "cores": cores_here(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "pictures": find_spec("matplotlib") is not None,
        "shape": words.shape,
        "options": options,
    }
    with tempfile.TemporaryDirectory() as scratch:
        root, start = words.keep or Path(scratch), time.monotonic()
        images = make_queue(
            root / "raw",
            words.scans,
            shape=tuple(words.shape),
            voxel_mm=words.voxel,
            with_mask=not words.find_brain,
        )
        print(
            f"{words.scans} scans made in {time.monotonic() - start:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True
        )
        found["overlapped"] = measure(images, root / "overlapped", helpers=words.helpers, options=options)
        print(f"overlapped: {json.dumps(found['overlapped'])}", flush=True)
        if words.serial:
            found["serial"] = measure(images[: words.serial], root / "serial", helpers=0, options=options)
            rates = [found[way]["subjects_per_minute_after_the_first"] for way in ("overlapped", "serial")]
            found["times_faster"] = round(rates[0] / rates[1], 2)
            found["same_bytes"] = compare(root / "overlapped", root / "serial")
            print(f"serial: {json.dumps(found['serial'])}", flush=True)
            print(f"{found['times_faster']} times faster; files of the same bytes: {found['same_bytes']}", flush=True)
    words.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
