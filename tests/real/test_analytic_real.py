"""The analytic methods on a small real series: the order that theory and every other scan give."""

from pathlib import Path

import pytest

from tensorldm.evaluation.table import read_table
from tensorldm.experiments.analytic import compare_analytic
from tensorldm.experiments.record import record_run

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory, real_data: Path) -> dict[tuple[str, str], float]:
    """Figures of the tensor by method and metric, from United Imaging's 16 directions."""
    out = tmp_path_factory.mktemp("analytic")
    scan = real_data / "real" / "uih_PA" / "dwi.nii.gz"
    compare_analytic([scan], out, record=record_run([], seed=None), tell=lambda _: None)
    return {(row.method, row.metric): row.value for row in read_table(out / "table.csv") if row.quantity == "tensor"}


def test_more_directions_are_better(figures):
    for metric in ("lem", "off_diagonal_lem", "v1_median_degrees"):
        assert figures["ols-12", metric] < figures["ols-6", metric] < figures["minimum-norm", metric]


def test_far_off_the_axes_minimum_norm_is_clearly_better_than_either_ade(figures):
    """This scanner's directions are 37° off: off-diagonals leak into the diagonal that ADE solves for."""
    for rival in ("ade", "ade-literal"):
        assert figures["minimum-norm", "lem"] < 0.95 * figures[rival, "lem"]
        assert figures["minimum-norm", "v1_median_degrees"] < figures[rival, "v1_median_degrees"] - 5


def test_the_reference_violates_positivity_in_few_voxels_and_ade_in_none(figures):
    assert figures["reference", "spd_violations_percent"] < 5
    assert figures["ade", "spd_violations_percent"] == 0


def test_three_directions_miss_the_fibres_and_six_find_them(figures):
    assert 20 < figures["minimum-norm", "v1_median_degrees"] < 40
    assert figures["ols-6", "v1_median_degrees"] < 10
