"""A small field whose every voxel is another tensor, written in any orientation."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.imaging.volume import Space

SHAPE = (5, 6, 7)
TURN = Rotation.from_euler("xyz", [12, -7, 20], degrees=True).as_matrix()
OBLIQUE = np.eye(4)
OBLIQUE[:3] = np.column_stack([TURN @ np.diag([-1.9, 2.0, 2.9]), [5.0, 4.0, 7.0]])
"""A tilted head, stored right to left in voxels of three sizes."""


def some_tensors(shape=SHAPE, *, seed: int = 0) -> np.ndarray:
    """Positive definite, anisotropic, mm²/s, in image axes."""
    rng = np.random.default_rng(seed)
    turns = np.linalg.qr(rng.normal(size=(*shape, 3, 3)))[0]
    values = np.sort(rng.uniform(0.2e-3, 2e-3, size=(*shape, 3)), axis=-1)
    full = np.einsum("...in,...n,...jn->...ij", turns, values, turns)
    return full[..., [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]].astype(np.float32)


def write_result(
    folder: Path,
    packed: np.ndarray,
    *,
    affine: np.ndarray = OBLIQUE,
    mask: np.ndarray | None = None,
    method: str = "ours",
    subject: str | None = "one",
    convention: str = "mrtrix",
) -> Path:
    """A tensor with its mask, as a method leaves them; gives the tensor's path."""
    space = Space(packed.shape[:3], affine)
    inside = np.ones(space.shape, dtype=bool) if mask is None else mask
    write_mask(folder / "mask.nii.gz", inside, space=space)
    path = folder / "tensor.nii.gz"
    origin = Provenance(method, subject, folder / "mask.nii.gz")
    write_tensor(path, packed, space=space, convention=convention, notes=origin.notes_for(path))
    return path


@pytest.fixture
def make_result():
    return write_result


@pytest.fixture
def tensors():
    return some_tensors
