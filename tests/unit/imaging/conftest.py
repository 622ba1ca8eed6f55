"""Grids and series small enough to compute by hand, in every orientation a scanner might store."""

from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest

from tensorldm.imaging.volume import Space


def rotation(degrees: tuple[float, float, float]) -> np.ndarray:
    """Turn about x, then y, then z."""
    turn = np.eye(3)
    for axis, angle in enumerate(np.radians(degrees)):
        step = np.eye(3)
        a, b = (axis + 1) % 3, (axis + 2) % 3
        step[a, a] = step[b, b] = np.cos(angle)
        step[a, b], step[b, a] = -np.sin(angle), np.sin(angle)
        turn = step @ turn
    return turn


@pytest.fixture
def oblique() -> Callable[..., Space]:
    """A grid turned by up to 25 degrees, mirrored or not."""

    def make(shape=(6, 5, 4), *, voxel_size=(2.0, 2.0, 2.0), mirrored=True, degrees=(12.0, -20.0, 25.0)) -> Space:
        affine = np.eye(4)
        signs = (-1.0 if mirrored else 1.0, 1.0, 1.0)
        affine[:3, :3] = rotation(degrees) @ np.diag(signs) @ np.diag(voxel_size)
        affine[:3, 3] = (30.0, -40.0, 12.0)
        return Space(shape, affine)

    return make


@pytest.fixture
def save_series(tmp_path: Path) -> Callable[..., Path]:
    """A series on the disk with its gradients in FSL's files, written by nibabel and NumPy alone."""

    def save(num_volumes=4, *, name="dwi.nii.gz", bvals=None, bvecs=None, affine=None) -> Path:
        image = tmp_path / name
        image.parent.mkdir(parents=True, exist_ok=True)
        values = np.random.default_rng(0).integers(1, 900, (4, 3, 2, num_volumes)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(values, np.diag([-2.0, 2, 2, 1]) if affine is None else affine), image)
        stem = name.split(".")[0]
        if bvals is not None:
            np.savetxt(tmp_path / f"{stem}.bval", np.atleast_2d(bvals), fmt="%g")
        if bvecs is not None:
            np.savetxt(tmp_path / f"{stem}.bvec", bvecs, fmt="%g")
        return image

    return save
