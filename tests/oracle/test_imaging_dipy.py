"""DIPY stores tensors in its own order, in image axes."""

import numpy as np
from dipy.core.gradients import gradient_table
from dipy.reconst.dti import TensorModel, lower_triangular

from tensorldm.imaging.frames import decode_tensor
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.volume import Space


def test_what_dipy_calls_the_lower_triangle_is_the_dipy_convention():
    """DIPY works in the axes of the b-vectors it is given: the image's, when it is given those."""
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    space = Space((2, 1, 1), affine)
    draw = np.random.default_rng(0)
    directions = draw.normal(size=(13, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    gradients = GradientTable(np.array([0.0] + [1000.0] * 12), directions)
    roots = draw.normal(size=(2, 1, 1, 3, 3)) * 0.02
    matrices = roots @ roots.swapaxes(-1, -2) + 1e-4 * np.eye(3)
    exponent = np.einsum("ni,xyzij,nj->xyzn", directions, matrices, directions)
    signal = 500 * np.exp(-gradients.bvals * exponent)
    table = gradient_table(gradients.bvals, bvecs=gradients.directions, b0_threshold=50)
    fit = TensorModel(table, fit_method="OLS").fit(signal)
    packed = decode_tensor(lower_triangular(fit.quadratic_form), space, "dipy")
    expected = matrices[..., [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    np.testing.assert_allclose(packed, expected, atol=1e-9)
