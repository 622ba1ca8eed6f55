import pytest
import torch

from tensorldm.dti.cylinder import tensor_from_maps
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.maps import colour_fa, fractional_anisotropy, mean_diffusivity, radial_diffusivity


def maps_of(packed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return mean_diffusivity(packed), radial_diffusivity(packed), fractional_anisotropy(packed), colour_fa(packed)


def cylinder(axis: list[float], ad: float, rd: float) -> torch.Tensor:
    x, y, z = torch.nn.functional.normalize(torch.tensor(axis, dtype=torch.float64), dim=0)
    ones = torch.tensor([1, 1, 1, 0, 0, 0], dtype=torch.float64)
    return rd * ones + (ad - rd) * torch.stack((x * x, y * y, z * z, x * y, x * z, y * z))


def test_a_cylinder_in_the_first_octant_comes_back_from_its_maps():
    tensor = cylinder([1.0, 2.0, 3.0], 1.7e-3, 3e-4)
    torch.testing.assert_close(tensor_from_maps(*maps_of(tensor)), tensor, rtol=1e-6, atol=0)


def test_colour_fa_has_lost_the_sign_so_a_cylinder_elsewhere_comes_back_mirrored():
    tensor = cylinder([1.0, -2.0, 3.0], 1.7e-3, 3e-4)
    mirrored = cylinder([1.0, 2.0, 3.0], 1.7e-3, 3e-4)
    torch.testing.assert_close(tensor_from_maps(*maps_of(tensor)), mirrored, rtol=1e-6, atol=0)


def test_below_an_fa_of_one_twentieth_the_tensor_is_a_sphere_of_radial_diffusivity():
    md, rd, fa = torch.tensor([8e-4, 8e-4]), torch.tensor([7e-4, 7e-4]), torch.tensor([0.0499, 0.0501])
    result = tensor_from_maps(md, rd, fa, torch.tensor([[0.0499, 0.0, 0.0], [0.0501, 0.0, 0.0]]))
    assert result[0].tolist() == pytest.approx([7e-4, 7e-4, 7e-4, 0, 0, 0])
    assert result[1].tolist() == pytest.approx([1e-3, 7e-4, 7e-4, 0, 0, 0])


def test_axial_diffusivity_is_not_below_zero():
    tensor = tensor_from_maps(torch.tensor(1e-4), torch.tensor(5e-4), torch.tensor(0.5), torch.tensor([0.0, 0.0, 0.5]))
    assert eigenvalues(tensor).min().item() == pytest.approx(0.0, abs=1e-9)


def test_a_voxel_without_colour_is_finite():
    zeros = torch.zeros(2)
    assert torch.equal(tensor_from_maps(zeros, zeros, zeros + 0.5, torch.zeros(2, 3)), torch.zeros(2, 6))
