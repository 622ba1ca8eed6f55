"""A small tensor field on an oblique grid, and its files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.imaging.volume import Space

SHAPE = (9, 8, 7)


def oblique_space(*, determinant: int = 1) -> Space:
    a, b = np.radians(25), np.radians(-15)
    about_z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
    about_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    affine = np.eye(4)
    affine[:3, :3] = about_z @ about_y @ np.diag([2.0 * determinant, 2.0, 2.5])
    affine[:3, 3] = [-8, 3, 11]
    return Space(SHAPE, affine)


def brain_like(seed: int) -> np.ndarray:
    """Positive definite tensors of about 1e-3 mm²/s, many of them clearly anisotropic."""
    roots = np.random.default_rng(seed).normal(scale=0.02, size=(*SHAPE, 3, 3))
    matrices = roots @ np.swapaxes(roots, -1, -2) + 2e-4 * np.eye(3)
    pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    return np.stack([matrices[..., i, j] for i, j in pairs], axis=-1).astype(np.float32)


@pytest.fixture
def mask() -> np.ndarray:
    mask = np.zeros(SHAPE, dtype=bool)
    mask[1:8, 1:7, 1:6] = True
    return mask


@pytest.fixture
def reference(tmp_path: Path, mask: np.ndarray) -> Path:
    """A reference whose sidecar names its subject and mask."""
    path = tmp_path / "reference.nii.gz"
    write_mask(tmp_path / "brain.nii.gz", mask, space=oblique_space())
    origin = Provenance("ols", "volunteer", tmp_path / "brain.nii.gz")
    write_tensor(path, brain_like(0), space=oblique_space(), notes=origin.notes_for(path))
    return path


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a tensor beside the reference, with a sidecar that names convention but no method."""

    def write_field(name: str, packed: np.ndarray, *, convention: str = "mrtrix", space: Space | None = None) -> Path:
        path = tmp_path / f"{name}.nii.gz"
        write_tensor(path, packed, space=space or oblique_space(), convention=convention)
        return path

    return write_field
