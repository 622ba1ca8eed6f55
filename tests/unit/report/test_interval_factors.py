"""Factors of a calibrated model on the way from a sidecar to its page."""

from pathlib import Path

import pytest

from tensorldm.bundle import IntervalFactors
from tensorldm.errors import DataError
from tensorldm.report.details import run_details
from tensorldm.report.sidecar_check import check_sidecar

CALIBRATED = IntervalFactors(fa=1.5, md=2.0, v1=3.0, source="24 heads", md_by_tissue=(1.25, 2.5, 4.0))


@pytest.mark.parametrize("factors", [IntervalFactors(), CALIBRATED], ids=["uncalibrated", "by tissue"])
def test_a_sidecar_with_a_models_factors_is_read(notes, factors):
    written = {"Volumes": [0, 1, 2, 3], "BValues": [0.0] * 4, "AnglesToAxesDegrees": [0.0] * 3, "Warnings": []}
    intervals = {"Level": 0.95, **factors.model_dump(mode="json")}
    known = {key: value for key, value in notes.items() if key != "GradientTable"}
    check_sidecar(Path("tensor.json"), {**known, **written, "Intervals": intervals})
    with pytest.raises(DataError, match="md_by_tissue"):
        check_sidecar(
            Path("tensor.json"), {**known, **written, "Intervals": {**intervals, "md_by_tissue": [1.0, "<b>"]}}
        )


def test_the_page_tells_the_factor_of_each_tissue(result, notes):
    text = str(run_details(result, {**notes, "Intervals": {"Level": 0.95, **CALIBRATED.model_dump(mode="json")}}))
    assert "95%; 24 heads (fa × 1.5, md × 1.25 / 2.5 / 4 in csf / grey / white, v1 × 3)" in text
