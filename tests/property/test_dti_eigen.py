"""The closed-form decomposition holds for any six numbers."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorldm.dti.eigen import compose, eigen, eigenvalues
from tensorldm.dti.packing import unpack

entries = st.floats(-1e6, 1e6, allow_nan=False, width=32)
# Few distinct values make equal eigenvalues, zeros and exact symmetries likely.
coarse = st.sampled_from([0.0, 1.0, -1.0, 2.0, 1e-4, 1.0 + 2**-22])
tensors = st.one_of(
    st.lists(entries, min_size=6, max_size=6),
    st.lists(coarse, min_size=6, max_size=6),
)


@settings(deadline=None)
@given(tensors, st.sampled_from([torch.float32, torch.float64]))
def test_eigenvalues_and_vectors_rebuild_the_tensor(entries, dtype):
    packed = torch.tensor(entries, dtype=dtype)
    tolerance = 8 * torch.finfo(dtype).eps
    exact = torch.linalg.eigvalsh(unpack(packed.double())).flip(-1)
    size = exact.abs().max().item()
    values, vectors = eigen(packed)
    assert (values.double() - exact).abs().max() <= tolerance * size
    assert (eigenvalues(packed).double() - exact).abs().max() <= tolerance * size
    assert (compose(values, vectors) - packed).abs().max() <= tolerance * size
    assert (vectors.mT @ vectors - torch.eye(3)).abs().max() <= tolerance
    assert values[0] >= values[1] >= values[2]


@settings(deadline=None)
@given(tensors)
def test_gradients_of_the_eigenvalues_are_finite_for_any_tensor(entries):
    packed = torch.tensor(entries, requires_grad=True)
    eigenvalues(packed)[0].backward()
    # The largest eigenvalue is the quadratic form of a unit vector, so its gradient has trace one.
    assert abs(packed.grad[:3].sum().item() - 1) < 1e-5
