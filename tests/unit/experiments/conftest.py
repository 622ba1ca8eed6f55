"""Small heads as 2 mm scans, untrained models, and studies made of long tables that were written by hand."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tensorldm.build import build_model
from tensorldm.bundle import Card, write_bundle
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.config.reading import dump_config, read_config
from tensorldm.config.run import RunConfig
from tensorldm.dti.signal import predict_signal
from tensorldm.evaluation.table import Row, write_table
from tensorldm.experiments import preparing_runs
from tensorldm.experiments.config import StudyConfig
from tensorldm.experiments.parts import Results
from tensorldm.experiments.tables.stored import StoredStudy
from tensorldm.imaging.gradients import GradientTable, write_fsl
from tensorldm.imaging.nifti import write_mask, write_volume
from tensorldm.imaging.volume import Space, Volume
from tensorldm.training.validation import SCORE

SHAPE = (20, 24, 18)


def spiral(count: int) -> np.ndarray:
    k = np.arange(count) + 0.5
    z, turn = 1 - k / count, np.pi * (1 + 5**0.5) * k
    ring = np.sqrt(1 - z**2)
    return np.column_stack([ring * np.cos(turn), ring * np.sin(turn), z])


def write_scan(folder: Path, index: int) -> Path:
    """A procedural head as coarse as 9 mm in a file that says 2 mm, LAS, 1 b=0 and 15 directions, with noise."""
    source = ProceduralSource(split="test", shape=SHAPE, voxel_size=(9.0, 9.0, 9.0), bundles=())
    head = source.load(f"procedural/test/{index:04d}")
    bvals = np.concatenate([[0.0], np.full(15, 1000.0)])
    directions = np.concatenate([np.zeros((1, 3)), spiral(15)])
    packed = head.components[0].movedim(0, -1).double()
    clean = predict_signal(packed, 800 * head.s0.double(), torch.from_numpy(bvals), torch.from_numpy(directions))
    noise = np.random.default_rng(index).normal(scale=8, size=(2, *clean.shape))
    signal = np.hypot(clean.numpy() + noise[0], noise[1]).astype(np.float32)
    space = Space(SHAPE, np.diag([-2.0, 2.0, 2.0, 1.0]))
    write_volume(folder / "dwi.nii.gz", Volume(signal, space))
    write_mask(folder / "mask.nii.gz", head.mask.numpy(), space=space)
    write_fsl(folder / "dwi.bval", folder / "dwi.bvec", gradients=GradientTable(bvals, directions), space=space)
    return folder / "dwi.nii.gz"


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("scans")
    return [write_scan(root / f"head{place}", index) for place, index in enumerate((0, 2))]


@pytest.fixture(scope="session")
def make_bundle(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A model that nobody has trained."""

    def make(seed: int, *overrides: str) -> Path:
        folder = tmp_path_factory.mktemp("model") / "bundle"
        config = read_config(RunConfig, "smoke", overrides).model
        weights = build_model(config, seed).state_dict()
        write_bundle(folder, weights, config=config, joint=("gated", "gated"), card=Card())
        return folder

    return make


@pytest.fixture(scope="session")
def bundle(make_bundle: Callable[..., Path]) -> Path:
    return make_bundle(3)


SYNTHETIC = {
    "groups": {"virtual": {"virtual": {"subjects": 6}}},
    "methods": {
        "ade": {"analytic": "ade"},
        "minimum-norm": {"analytic": "minimum-norm"},
        "ols-12": {"analytic": "ols-12", "ranked": False, "note": "twelve directions"},
    },
    "comparisons": {
        "equal": {"title": "equal budget", "ours": "minimum-norm", "methods": ["ade", "ols-12"], "note": "same minutes"}
    },
}


@pytest.fixture(scope="session")
def store_in() -> Callable[..., StoredStudy]:
    """A study in a folder whose long tables hold these rows, by experiment."""

    def make(folder: Path, tables: dict[str, Sequence[Row]], **changes) -> StoredStudy:
        study = StudyConfig.model_validate({**SYNTHETIC, **changes})
        (folder / "study.yaml").write_text(dump_config(study), encoding="utf-8")
        for experiment, rows in tables.items():
            write_table(Results(folder).table(experiment, "virtual"), rows)
        return StoredStudy.open(folder)

    return make


@pytest.fixture
def stored(tmp_path: Path, store_in: Callable[..., StoredStudy]) -> Callable[..., StoredStudy]:
    """The same in a folder of the test's own."""
    return partial(store_in, tmp_path)


class FakeTraining:
    """Stands for the loop: each stage's bundle is written untrained; a run may fail or be stopped on its way."""

    def __init__(self, score=lambda config: 1.0, **ends):
        self.calls, self.score, self.ends = [], score, ends

    def __call__(self, config, data, *, out, stages, start, console, method):
        self.calls.append((out.name, tuple(stages)))
        end = self.ends.get(out.name)
        if isinstance(end, Exception):
            raise end
        if end == "stop":
            return False
        for number in stages:
            work = method.prepare(config, number, start=start)
            card = Card(stages=(number,), measures={SCORE: self.score(config)})
            work.write(out / f"stage{number}" / "bundle", work.model.state_dict(), card=card)
        return True


@pytest.fixture(scope="session")
def fake_training() -> type[FakeTraining]:
    """For fixtures that serve several tests."""
    return FakeTraining


@pytest.fixture
def fake(monkeypatch):
    def put(**how) -> FakeTraining:
        loop = FakeTraining(**how)
        monkeypatch.setattr(preparing_runs, "run_training", loop)
        return loop

    return put
