"""LEM, SPD violations and principal directions: closed forms and what must not change them."""

import math

import pytest
import torch
from torch import Tensor

from tensorldm.dti.packing import pack, rotate
from tensorldm.metrics.tensors import lem, off_diagonal_lem, spd_violation_rate, v1_angles

EVERY = torch.ones(1, dtype=torch.bool)


def packed(*components: float) -> Tensor:
    return torch.tensor([components], dtype=torch.float64)


def turn_about_z(degrees: float) -> Tensor:
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)


FIBRE = packed(1.7e-3, 3e-4, 3e-4, 0, 0, 0)


def test_lem_of_diagonal_tensors_is_the_norm_of_the_log_ratios():
    wider = packed(1.7e-3, 3e-4 * math.exp(0.3), 3e-4 * math.exp(0.4), 0, 0, 0)
    assert lem(FIBRE, wider, EVERY).item() == pytest.approx(0.5)


def test_lem_of_a_doubled_tensor_is_root_three_times_log_two():
    assert lem(FIBRE, 2 * FIBRE, EVERY).item() == pytest.approx(math.sqrt(3) * math.log(2))


def test_lem_does_not_change_when_both_fields_are_rotated(generator):
    matrices = torch.randn(2, 40, 3, 3, generator=generator, dtype=torch.float64) * 1e-2
    one, two = (pack(m @ m.mT + 1e-5 * torch.eye(3, dtype=torch.float64)) for m in matrices)
    mask = torch.ones(40, dtype=torch.bool)
    rotation = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    turned = lem(rotate(one, rotation), rotate(two, rotation), mask).item()
    assert turned == pytest.approx(lem(one, two, mask).item(), rel=1e-8)


def test_eigenvalues_below_the_floor_count_as_the_floor():
    broken = packed(1.7e-3, 3e-4, -5e-4, 0, 0, 0)
    for floor in (1e-7, 1e-6, 1e-5):
        assert lem(FIBRE, broken, EVERY, floor=floor).item() == pytest.approx(math.log(3e-4 / floor))


def test_off_diagonal_lem_sees_only_what_is_off_the_diagonal_of_the_logarithm():
    assert off_diagonal_lem(FIBRE, 3 * FIBRE, EVERY).item() == pytest.approx(0.0, abs=1e-9)
    # Turned by 45° about z, Log has (l1 - l2) / 2 at xy and at yx, where the reference has zero.
    turned = rotate(FIBRE, turn_about_z(45))
    assert off_diagonal_lem(FIBRE, turned, EVERY).item() == pytest.approx(math.log(17 / 3) / math.sqrt(2))


def test_off_diagonal_and_diagonal_parts_make_up_the_whole_lem():
    turned = rotate(FIBRE, turn_about_z(90))
    assert off_diagonal_lem(FIBRE, turned, EVERY).item() == pytest.approx(0.0, abs=1e-9)
    assert lem(FIBRE, turned, EVERY).item() == pytest.approx(math.sqrt(2) * math.log(17 / 3))


def test_spd_violation_rate_counts_mask_voxels_with_a_negative_eigenvalue():
    hidden = packed(1e-3, 1e-3, 1e-3, 1.2e-3, 0, 0)  # a positive diagonal, and yet an eigenvalue of -2e-4
    field = torch.cat([FIBRE, hidden, FIBRE, -FIBRE, hidden])
    mask = torch.tensor([True, True, True, True, False])
    assert spd_violation_rate(field, mask).item() == pytest.approx(50.0)


def test_rank_deficient_tensors_are_not_violations_through_rounding(generator):
    directions = torch.nn.functional.normalize(torch.randn(500, 3, generator=generator), dim=-1)
    sticks = pack(3e-3 * directions[:, :, None] * directions[:, None, :])
    assert spd_violation_rate(sticks, torch.ones(500, dtype=torch.bool)).item() == 0.0


@pytest.mark.parametrize("degrees", [0.0, 0.01, 12.0, 45.0, 90.0])
def test_v1_angle_is_the_angle_a_tensor_was_turned_by(degrees):
    angles = v1_angles(FIBRE, rotate(FIBRE, turn_about_z(degrees)), EVERY)
    assert angles.tolist() == pytest.approx([degrees], abs=1e-4)


def test_v1_angles_beyond_ninety_degrees_come_back():
    assert v1_angles(FIBRE, rotate(FIBRE, turn_about_z(130)), EVERY).tolist() == pytest.approx([50.0])


def test_v1_is_compared_only_where_the_reference_is_anisotropic_and_in_the_mask():
    grey = packed(9e-4, 8e-4, 8e-4, 0, 0, 0)
    reference = torch.cat([FIBRE, grey, FIBRE])
    prediction = rotate(torch.cat([FIBRE, FIBRE, FIBRE]), turn_about_z(30))
    mask = torch.tensor([True, True, False])
    assert v1_angles(reference, prediction, mask).tolist() == pytest.approx([30.0])
