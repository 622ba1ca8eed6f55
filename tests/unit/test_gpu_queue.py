"""The benchmark of a queue: its scans are scans, and its figures follow from what was written down."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.nifti import read_mask, read_volume

BENCHMARK = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "gpu_queue.py"))
ABSENT = ("dipy", "yaml", "monai", "matplotlib", "PIL", "pandas", "lightning_fabric", "dask", "distributed", "bids")
PART = "reconstructing with tensorldm"


@pytest.fixture
def out(tmp_path):
    """A run whose scans ended 10, 12, 14, 16 and 18 seconds after its start, each 1.5 seconds on the device."""
    journal = tmp_path / "out" / ".tensorldm" / "journal"
    journal.mkdir(parents=True)
    for number in range(5):
        entry = journal / f"scan{number}.json"
        entry.write_text(json.dumps({"summary": {"seconds": [["reading", 0.5], [PART, 1.5]]}}))
        os.utime(entry, (0, 1000 + 10 + 2 * number))
    return tmp_path / "out"


def test_rates_and_the_devices_share_are_those_between_the_first_end_and_the_last(out):
    gpu = BENCHMARK["GpuWatch"]()
    gpu.samples = [(1005.0, 0.0, 9000.0), (1011.0, 100.0, 500.0), (1015.0, 50.0, 700.0), (1017.0, 0.0, 600.0)]
    found = BENCHMARK["summary"](out, 1000.0, 1020.0, gpu)
    assert found["subjects_per_minute"] == 60 * 5 / 20
    assert found["subjects_per_minute_after_the_first"] == 60 * 4 / 8
    assert found["device_busy_share"] == 4 * 1.5 / 8
    assert found["seconds_by_part"] == {"reading": 0.5, PART: 1.5}
    assert found["seconds_until_the_first"] == 10
    assert found["gpu_percent_mean"] == 50, "what came before the first scan's end is not counted"
    assert found["gpu_share_of_samples_above_0"] == pytest.approx(2 / 3, abs=1e-3)
    assert found["gpu_mib_peak"] == 700


def test_without_a_gpu_nothing_is_said_of_one(out):
    gpu = BENCHMARK["GpuWatch"]()
    gpu.samples = []
    assert not [name for name in BENCHMARK["summary"](out, 1000.0, 1020.0, gpu) if name.startswith("gpu")]


def test_scans_are_one_head_with_other_noise(tmp_path):
    make = BENCHMARK["make_queue"]
    one, other = make(tmp_path, 2, shape=(24, 28, 24), voxel_mm=7.0, with_mask=True)
    first, second = read_volume(one).data, read_volume(other).data
    mask, _ = read_mask(one.with_name("mask.nii.gz"))
    noise = BENCHMARK["SCANNER_UNITS"] / BENCHMARK["SNR"]
    assert np.std((first - second)[mask][:, 0]) == pytest.approx(noise * 2**0.5, rel=0.05)
    assert np.median(first[~mask]) == pytest.approx(1.1774 * noise, rel=0.1), "air is the magnitude of noise"
    table = read_gradients(one)
    assert list(table.bvals) == [0, 1000, 1000, 1000]
    assert (np.abs(table.directions[1:]).argmax(axis=1) == [0, 1, 2]).all()


def test_a_scan_with_its_mask_is_reconstructed_where_only_the_listed_packages_are_installed(tmp_path):
    (image,) = BENCHMARK["make_queue"](tmp_path, 1, shape=(24, 28, 24), voxel_mm=7.0, with_mask=True)
    words = ["tensorldm", "reconstruct", str(image), "-o", str(tmp_path / "out"), "--method", "minimum-norm"]
    code = f"import sys\nfor name in {ABSENT}: sys.modules[name] = None\nsys.argv = {words!r}\n"
    code += "from tensorldm.cli.main import run\nrun()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "No picture was drawn" in done.stdout
    assert (tmp_path / "out" / "tensor.nii.gz").is_file()
