"""Distances of the procedural head, and their gradients."""

import torch

from tensorldm.cohort.procedural.shape import gradient


def test_a_gradient_is_a_unit_vector_and_zero_where_there_is_none():
    points = torch.tensor([[0.0, 0.0, 5.0], [3.0, 4.0, 5.0]])
    found = gradient(lambda at: torch.hypot(at[:, 0], at[:, 1]), points)
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, 0.0], [0.6, 0.8, 0.0]]))
