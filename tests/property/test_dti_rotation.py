"""What does not depend on the axes does not change when they turn."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tensorldm.dti.logarithm import exp, log, log_euclidean_distance
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity, mode, principal_direction
from tensorldm.dti.packing import frobenius, pack, rotate

diffusivity = st.floats(2e-5, 3.5e-3)
component = st.floats(-1, 1)


def matrix_of(quaternion: list[float]) -> torch.Tensor:
    w, x, y, z = torch.nn.functional.normalize(torch.tensor(quaternion, dtype=torch.float64), dim=0)
    return torch.stack(
        (
            torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w))),
            torch.stack((2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w))),
            torch.stack((2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y))),
        )
    )


rotations = st.lists(component, min_size=4, max_size=4).filter(lambda q: sum(x * x for x in q) > 0.01).map(matrix_of)


@st.composite
def brain_tensors(draw: st.DrawFn) -> torch.Tensor:
    frame = draw(rotations)
    values = torch.tensor([draw(diffusivity) for _ in range(3)], dtype=torch.float64)
    return pack((frame * values) @ frame.mT)


@settings(deadline=None)
@given(brain_tensors(), rotations)
def test_fa_md_and_norm_do_not_change_when_the_tensor_is_rotated(tensor, rotation):
    turned = rotate(tensor, rotation)
    for scalar in (fractional_anisotropy, mean_diffusivity, frobenius):
        torch.testing.assert_close(scalar(turned), scalar(tensor), rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(brain_tensors(), rotations)
def test_mode_does_not_change_when_the_tensor_is_rotated(tensor, rotation):
    assume(fractional_anisotropy(tensor) > 0.01)  # a sphere has no mode
    torch.testing.assert_close(mode(rotate(tensor, rotation)), mode(tensor), rtol=0, atol=1e-6)


@settings(deadline=None)
@given(brain_tensors(), brain_tensors(), rotations)
def test_log_euclidean_distance_does_not_change_when_both_tensors_are_rotated(a, b, rotation):
    turned = log_euclidean_distance(rotate(a, rotation), rotate(b, rotation))
    torch.testing.assert_close(turned, log_euclidean_distance(a, b), rtol=1e-8, atol=1e-9)


@settings(deadline=None)
@given(brain_tensors(), rotations)
def test_the_fibre_axis_turns_with_the_tensor(tensor, rotation):
    assume(fractional_anisotropy(tensor) > 0.05)
    assume(mode(tensor) > -0.9)  # a disc has no single axis
    expected = rotation @ principal_direction(tensor)
    assert angle_degrees(principal_direction(rotate(tensor, rotation)), expected) < 1e-6


@settings(deadline=None)
@given(brain_tensors())
def test_exp_undoes_log(tensor):
    torch.testing.assert_close(exp(log(tensor)), tensor, rtol=1e-9, atol=1e-15)


@settings(deadline=None)
@given(brain_tensors(), rotations)
def test_the_logarithm_turns_with_the_tensor(tensor, rotation):
    torch.testing.assert_close(log(rotate(tensor, rotation)), rotate(log(tensor), rotation), rtol=1e-8, atol=1e-9)
