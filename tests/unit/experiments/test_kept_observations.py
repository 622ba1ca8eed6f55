"""Judged subjects on the disk: read back to the bit, and never taken for what was made otherwise."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from tensorldm.experiments.coverage import Observed, coverage_rows
from tensorldm.experiments.kept_observations import KeptObservations
from tensorldm.reconstruct.calibration import Judged, judge
from tensorldm.reconstruct.uncertainty import Calibration

WAY = {"weights": "ab12", "samples": 5}


@pytest.fixture
def observed() -> Observed:
    random = torch.Generator().manual_seed(2)
    truth = torch.tensor([1.5, 0.4, 0.4, 0.1, 0.0, 0.0]).double() * 1e-3
    samples = truth + 1e-4 * torch.randn(5, 40, 6, generator=random, dtype=torch.float64)
    clean, fit = judge(samples, truth.expand(40, 6), samples[0])
    tissue = np.arange(40, dtype=np.int8) % 3 - 1
    return Observed("head/../1", "head", 3, {"clean": clean, "fit": fit}, tissue)


def test_what_is_read_back_is_what_was_kept(observed, tmp_path):
    KeptObservations(tmp_path, WAY).write("validation/head@0", observed)
    found = KeptObservations(tmp_path, dict(WAY)).read("validation/head@0")
    assert found is not None
    assert (found.name, found.anatomy, found.num_directions) == (observed.name, observed.anatomy, 3)
    np.testing.assert_array_equal(found.tissue, observed.tissue)
    assert list(found.judged) == ["clean", "fit"]
    for truth, judged in observed.judged.items():
        for field in fields(Judged):
            np.testing.assert_array_equal(getattr(found.judged[truth], field.name), getattr(judged, field.name))
    assert coverage_rows("test", [found], Calibration()) == coverage_rows("test", [observed], Calibration())


def test_another_model_another_subject_and_a_damaged_file_count_as_absent(observed, tmp_path):
    kept = KeptObservations(tmp_path, WAY)
    kept.write("test/head@0", observed)
    assert kept.read("test/head@1") is None
    assert replace(kept, made_with={**WAY, "weights": "cd34"}).read("test/head@0") is None
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    for damaged in (b"", content[:100], content[:-8]):
        path.write_bytes(damaged)
        assert kept.read("test/head@0") is None
    path.write_bytes(content)
    assert kept.read("test/head@0") is not None


def test_a_subject_renamed_on_the_disk_is_not_believed(observed, tmp_path):
    kept = KeptObservations(tmp_path, WAY)
    kept.write("test/head@0", observed)
    (path,) = tmp_path.iterdir()
    path.rename(path.with_name(path.name.replace("%400", "%401")))
    assert kept.read("test/head@1") is None


def test_cleared_they_are_gone(observed, tmp_path):
    kept = KeptObservations(tmp_path / "observed", WAY)
    kept.write("test/head@0", observed)
    kept.clear()
    assert list(tmp_path.iterdir()) == []
