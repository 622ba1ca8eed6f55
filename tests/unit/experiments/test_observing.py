"""Subjects are drawn once; the model is not even loaded where nothing is left to draw."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from tensorldm.cohort.config import read_cohort
from tensorldm.experiments.kept_observations import KeptObservations
from tensorldm.experiments.known_scans import FIT, KnownScan, open_split
from tensorldm.experiments.observing import KEPT, Observer
from tensorldm.reconstruct.calibration import Judged
from tensorldm.reconstruct.engine import Traits, WorkingScan
from tensorldm.reconstruct.uncertainty import Calibration

CPU = torch.device("cpu")
TRUTH = torch.tensor([1.5, 0.4, 0.4, 0.1, 0.0, 0.0], dtype=torch.float64).expand(30, 6) * 1e-3


@dataclass
class Drawing:
    """Engines that it loads, scans that they draw of, and what the user is told."""

    folder: Path
    loaded: int = 0
    drawn: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    traits: ClassVar = Traits("drawing", voxelwise=False, fixed_input=False, samples=True)
    notes: ClassVar[dict[str, str]] = {}
    calibration: ClassVar = Calibration()

    def observer(self) -> Observer:
        return Observer(self.load, CPU, KeptObservations(self.folder, {"samples": 3}), self.told.append)

    def load(self) -> "Drawing":
        self.loaded += 1
        return self

    def estimate(self, scan: WorkingScan) -> torch.Tensor:
        self.drawn.append(scan.key)
        random = torch.Generator().manual_seed(len(self.drawn))
        voxels = int(scan.mask.sum())
        return TRUTH[:1] * (1 + 0.1 * torch.randn(3, voxels, 6, generator=random, dtype=torch.float64))


@pytest.fixture
def drawing(tmp_path) -> Drawing:
    return Drawing(tmp_path)


@pytest.fixture
def series() -> KnownScan:
    mask = torch.ones(30, 1, 1, dtype=torch.bool)
    bvals = torch.tensor([0.0, 1000.0, 1000.0, 1000.0], dtype=torch.float64)
    directions = torch.cat([torch.zeros(1, 3), torch.eye(3)]).double()
    scan = WorkingScan(torch.ones(4, 30, 1, 1), bvals, directions, mask, (2.0, 2.0, 2.0), 1.0, "first")
    return KnownScan("scan", "person", scan, {FIT: TRUTH}, np.zeros(30, dtype=np.int8))


def same(a: Judged, b: Judged) -> bool:
    return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("fa", "md", "v1"))


def test_a_series_is_drawn_again_only_where_its_volumes_or_its_fit_have_changed(drawing, series):
    first = drawing.observer().observe_series(series)
    again = drawing.observer().observe_series(series)
    assert same(first.judged[FIT], again.judged[FIT])
    assert (drawing.loaded, drawing.drawn) == (1, ["first"])
    assert drawing.told == ["real: scan", f"real: scan{KEPT}"]
    drawing.observer().observe_series(replace(series, scan=replace(series.scan, key="second")))
    drawing.observer().observe_series(replace(series, truths={FIT: 1.1 * TRUTH}))
    assert drawing.drawn == ["first", "second", "first"]


def test_a_split_goes_on_after_its_last_subject_in_the_same_order(drawing):
    cohort = read_cohort("cohort", ["shape=[16,16,16]", "voxel_mm=[11,11,11]", "protocol.directions=[12,12]"])
    split = open_split("cohort:procedural", "validation", cohort=cohort, number=3, seed=0)
    whole = drawing.observer().observe_split(split)
    assert len(drawing.drawn) == len({subject.name for subject in whole}) == 3
    (lost,) = [path for path in drawing.folder.iterdir() if path.name.endswith(f"%40{split.dealt[1][1]}.safetensors")]
    lost.unlink()
    again = drawing.observer().observe_split(split)
    assert [subject.name for subject in again] == [subject.name for subject in whole]
    assert drawing.drawn[3:] == drawing.drawn[1:2]
    drawing.observer().observe_split(split)
    assert drawing.loaded == 2, "nothing was left to draw"
