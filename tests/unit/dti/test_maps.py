import math

import pytest
import torch

from tensorldm.dti.maps import (
    angle_degrees,
    axial_diffusivity,
    colour_fa,
    fractional_anisotropy,
    mean_diffusivity,
    mode,
    principal_direction,
    radial_diffusivity,
)


def diagonal(*values: float) -> torch.Tensor:
    return torch.tensor([*values, 0.0, 0.0, 0.0], dtype=torch.float64)


def test_textbook_values_of_a_white_matter_tensor():
    tensor = diagonal(4e-4, 1.7e-3, 3e-4)
    assert mean_diffusivity(tensor).item() == pytest.approx(8e-4)
    assert axial_diffusivity(tensor).item() == pytest.approx(1.7e-3)
    assert radial_diffusivity(tensor).item() == pytest.approx(3.5e-4)
    assert fractional_anisotropy(tensor).item() == pytest.approx(math.sqrt(0.5 * (1.3**2 + 0.1**2 + 1.4**2) / 3.14))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_fa_is_one_for_a_line_and_zero_for_a_sphere_at_any_scale(scale, dtype):
    line, sphere = (scale * diagonal(*v).to(dtype) for v in ((1, 0, 0), (1, 1, 1)))
    assert fractional_anisotropy(line).item() == pytest.approx(1.0, abs=1e-6)
    assert fractional_anisotropy(sphere).item() == 0.0


def test_the_zero_tensor_has_no_anisotropy():
    assert fractional_anisotropy(diagonal(0, 0, 0)).item() == 0.0
    assert colour_fa(diagonal(0, 0, 0)).tolist() == [0.0, 0.0, 0.0]
    assert mode(diagonal(0, 0, 0)).item() == 0.0


def test_a_negative_eigenvalue_counts_as_zero_in_every_scalar_map():
    noisy, physical = diagonal(2e-3, 1e-3, -1e-3), diagonal(2e-3, 1e-3, 0.0)
    for scalar in (mean_diffusivity, axial_diffusivity, radial_diffusivity, fractional_anisotropy, mode, colour_fa):
        torch.testing.assert_close(scalar(noisy), scalar(physical))
    assert mean_diffusivity(noisy).item() == pytest.approx(1e-3)


def test_a_negative_definite_tensor_has_no_diffusion_at_all():
    tensor = diagonal(-1e-3, -2e-3, -3e-3)
    assert fractional_anisotropy(tensor).item() == 0.0
    assert mean_diffusivity(tensor).item() == 0.0


def test_mode_tells_lines_from_discs():
    assert mode(diagonal(3, 1, 1)).item() == pytest.approx(1.0)
    assert mode(diagonal(3, 3, 1)).item() == pytest.approx(-1.0)
    assert mode(diagonal(3, 2, 1)).item() == pytest.approx(0.0, abs=1e-12)
    assert mode(diagonal(1, 1, 1)).item() == 0.0


def test_colour_fa_is_fa_on_the_colour_of_the_fibre_axis_without_sign():
    axis = torch.tensor([0.6, -0.8, 0.0], dtype=torch.float64)
    tensor = torch.tensor([0.36, 0.64, 0.0, -0.48, 0.0, 0.0], dtype=torch.float64) + 0.2 * diagonal(1, 1, 1)
    expected = fractional_anisotropy(tensor) * axis.abs()
    torch.testing.assert_close(colour_fa(tensor), expected)
    assert angle_degrees(principal_direction(tensor), axis).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("degrees", [0.0, 1e-4, 1.0, 45.0, 89.9999, 90.0])
def test_angles_are_exact_in_float32_also_where_the_arc_cosine_is_not(degrees):
    radians = math.radians(degrees)
    v = torch.tensor([1.0, 0.0, 0.0])
    w = torch.tensor([math.cos(radians), math.sin(radians), 0.0])
    assert angle_degrees(v, w).item() == pytest.approx(degrees, rel=1e-6, abs=1e-9)
    assert angle_degrees(v, -w).item() == pytest.approx(degrees, rel=1e-6, abs=1e-9)
    assert angle_degrees(5 * v, 0.1 * w).item() == pytest.approx(degrees, rel=1e-6, abs=1e-9)


def test_the_gradient_of_fa_is_right_and_finite_for_a_sphere():
    tensors = torch.stack([diagonal(3, 2, 1), diagonal(3, 1, 1)]) + 0.1
    assert torch.autograd.gradcheck(fractional_anisotropy, tensors.requires_grad_())
    sphere = diagonal(1, 1, 1).requires_grad_()
    fractional_anisotropy(sphere).backward()
    assert torch.equal(sphere.grad, torch.zeros(6, dtype=torch.float64))
