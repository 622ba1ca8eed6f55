"""The benchmark of inference runs where only PyTorch and a few small packages are installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ABSENT = ("dipy", "nibabel", "scipy", "pandas", "typer", "lightning_fabric", "dask", "matplotlib", "monai")


@pytest.fixture(scope="module", params=["smoke", "base"])
def rows(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("speed") / "speed.jsonl"
    code = (
        f"import runpy, sys\nfor name in {ABSENT}: sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        f"sys.argv = ['speed', '--config', {request.param!r}, '--shape', '16', '16', '24', '--steps', '3', "
        f"'--default-steps', '2', '--repeats', '1', '--out', {str(out)!r}]\n"
        "runpy.run_module('inference_speed', run_name='__main__')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, capture_output=True)
    return {row.pop("what"): row for row in map(json.loads, out.read_text().splitlines())}


def test_every_way_is_timed_by_part(rows):
    assert list(rows) == ["fast", "default", "plain", "plain, reading at each step", "ratios"]
    for what in ("fast", "default"):
        row = rows[what]
        assert min(row["read_s"], row["sample_s"], row["decode_s"]) > 0
        assert row["total_s"] == pytest.approx(row["read_s"] + row["sample_s"] + row["decode_s"])
    assert (rows["fast"]["steps"], rows["default"]["steps"]) == (3, 2)
    assert 0.1 < rows["fast"]["peak_gib"] < 4


def test_the_plain_way_has_the_same_result_and_the_ratio_is_of_whole_times(rows):
    ratios = rows["ratios"]
    assert ratios["share of values that differ by 1e-3, plain and fast"] < 0.01
    assert ratios["plain / fast"] == pytest.approx(rows["plain"]["total_s"] / rows["fast"]["total_s"])
