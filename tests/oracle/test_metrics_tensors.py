"""LEM and the v1 angle against SciPy's general matrix logarithm and DIPY's eigenvectors."""

import numpy as np
import pytest
import torch
from dipy.reconst.dti import decompose_tensor, fractional_anisotropy
from scipy.linalg import logm

from tensorldm.dti.packing import pack
from tensorldm.metrics.ranges import V1_MIN_FA
from tensorldm.metrics.tensors import lem, off_diagonal_lem, v1_angles


@pytest.fixture
def fields(generator: torch.Generator) -> torch.Tensor:
    """Two fields of 30 tensors of brain-like size, from round to stick-like."""
    roots = torch.randn(2, 30, 3, 3, generator=generator, dtype=torch.float64) * 2e-2
    return roots @ roots.mT + 5e-5 * torch.eye(3, dtype=torch.float64)


def test_lem_is_the_frobenius_norm_of_scipys_matrix_logarithms(fields):
    differences = np.stack([logm(a) - logm(b) for a, b in zip(*fields.numpy(), strict=True)])
    one, two = (pack(field) for field in fields)
    mask = torch.ones(30, dtype=torch.bool)
    expected = np.linalg.norm(differences, axis=(1, 2)).mean()
    assert lem(one, two, mask).item() == pytest.approx(expected, rel=1e-9)
    off_diagonal = np.linalg.norm(differences * (1 - np.eye(3)), axis=(1, 2)).mean()
    assert off_diagonal_lem(one, two, mask).item() == pytest.approx(off_diagonal, rel=1e-9)


def test_v1_angles_are_those_of_dipys_eigenvectors(fields):
    values, vectors = decompose_tensor(fields.numpy())
    kept = fractional_anisotropy(values[0]) > V1_MIN_FA
    dots = np.abs(np.sum(vectors[0, :, :, 0] * vectors[1, :, :, 0], axis=-1))
    ours = v1_angles(pack(fields[0]), pack(fields[1]), torch.ones(30, dtype=torch.bool))
    np.testing.assert_allclose(ours.numpy(), np.degrees(np.arccos(np.clip(dots, 0, 1)))[kept], atol=1e-5)
