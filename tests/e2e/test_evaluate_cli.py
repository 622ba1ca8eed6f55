"""``tensorldm evaluate`` as a user types it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tensorldm.evaluation.table import read_table
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import sidecar_path, write_tensor
from tensorldm.imaging.volume import Space

SHAPE = (8, 8, 8)
SPACE = Space(SHAPE, np.diag([-2.0, 2.0, 2.0, 1.0]))


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tensorldm", "evaluate", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A reference and a prediction whose tensors are a fifth too large, with a mask beside them."""
    roots = np.random.default_rng(0).normal(scale=0.02, size=(*SHAPE, 3, 3))
    matrices = roots @ np.swapaxes(roots, -1, -2) + 2e-4 * np.eye(3)
    pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    packed = np.stack([matrices[..., i, j] for i, j in pairs], axis=-1).astype(np.float32)
    write_mask(tmp_path / "mask.nii.gz", np.ones(SHAPE, dtype=bool), space=SPACE)
    write_tensor(tmp_path / "full.nii.gz", packed, space=SPACE, convention="fsl")
    write_tensor(tmp_path / "sparse.nii.gz", 1.2 * packed, space=SPACE, convention="mrtrix")
    return tmp_path / "full.nii.gz", tmp_path / "sparse.nii.gz"


def test_a_table_is_written_and_the_constants_are_printed(files, tmp_path):
    answer = run(*files, "--out", tmp_path / "table.csv")
    assert answer.returncode == 0, answer.stderr
    found = {(row.method, row.quantity, row.metric): row.value for row in read_table(tmp_path / "table.csv")}
    assert found["sparse", "tensor", "lem"] == pytest.approx(3**0.5 * np.log(1.2), rel=1e-4)
    assert found["sparse", "FA", "nmse"] == pytest.approx(0, abs=1e-9)
    assert found["sparse", "MD", "nmse"] == pytest.approx(0.04, rel=1e-4)
    for words in ("0.316", "512 voxels in the mask", "off-diagonal 0.002", "K1 0.01", "table.csv"):
        assert words in " ".join(answer.stdout.split())


def test_an_unnamed_convention_ends_in_one_line_and_code_2(files, tmp_path):
    sidecar_path(files[1]).unlink()
    answer = run(*files, "--out", tmp_path / "table.csv")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert len(answer.stderr.strip().splitlines()) == 1
    assert "--convention mrtrix|fsl|dipy|nifti" in answer.stderr
    assert not (tmp_path / "table.csv").exists()


def test_a_missing_file_is_named(files, tmp_path):
    answer = run(files[0], tmp_path / "absent.nii.gz", "--convention", "fsl", "--out", tmp_path / "table.csv")
    assert answer.returncode == 2
    assert "absent.nii.gz" in answer.stderr
