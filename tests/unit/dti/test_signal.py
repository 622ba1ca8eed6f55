import math

import pytest
import torch

from tensorldm.dti.packing import unpack
from tensorldm.dti.signal import design_matrix, predict_signal


def test_signal_along_an_axis_is_the_textbook_decay():
    tensor = torch.tensor([1e-3, 2e-3, 3e-3, 0.0, 0.0, 0.0], dtype=torch.float64)
    s0 = torch.tensor(500.0, dtype=torch.float64)
    bvals = torch.tensor([0.0, 1000.0, 1000.0, 2000.0], dtype=torch.float64)
    directions = torch.tensor([[0, 0, 0], [1, 0, 0], [0, -1, 0], [0, 0, 1]], dtype=torch.float64)
    signal = predict_signal(tensor, s0, bvals, directions)
    assert signal.tolist() == pytest.approx([500.0, *(500 * math.exp(-x) for x in (1, 2, 6))])


def test_signal_is_that_of_the_quadratic_form(generator):
    matrices = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64) * 1e-3
    s0 = torch.rand(3, 4, generator=generator, dtype=torch.float64)
    bvals = torch.tensor([0.0, 700.0, 1000.0, 3000.0], dtype=torch.float64)
    directions = torch.nn.functional.normalize(torch.randn(4, 3, generator=generator, dtype=torch.float64), dim=-1)
    quadratic = torch.einsum("ni,xyij,nj->xyn", directions, unpack(matrices), directions)
    expected = s0[..., None] * torch.exp(-bvals * quadratic)
    torch.testing.assert_close(predict_signal(matrices, s0, bvals, directions), expected)


def test_the_last_column_of_the_design_is_the_logarithm_of_s0():
    design = design_matrix(torch.tensor([0.0, 1000.0]), torch.tensor([[0.0, 0.0, 0.0], [0.6, 0.0, 0.8]]))
    assert design[0].tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert design[1].tolist() == pytest.approx([-360, 0, -640, 0, -960, 0, 1])


def test_mixed_precision_training_does_not_coarsen_the_signal():
    tensor = torch.tensor([[1.03e-3, 2e-3, 3e-3, 1e-4, 2e-4, -1e-4]])
    arguments = (torch.ones(1), torch.tensor([1000.0]), torch.tensor([[0.6, 0.0, 0.8]]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = predict_signal(tensor, *arguments)
    assert torch.equal(inside, predict_signal(tensor, *arguments))
