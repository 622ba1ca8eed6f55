import pytest
import torch

from tensorldm.dti.packing import congruence, frobenius, pack, rotate, unpack


def symmetric(generator: torch.Generator, *shape: int) -> torch.Tensor:
    matrices = torch.randn(*shape, 3, 3, generator=generator, dtype=torch.float64)
    return matrices + matrices.mT


def test_packed_components_are_xx_yy_zz_xy_xz_yz():
    matrix = torch.tensor([[1.0, 4.0, 5.0], [4.0, 2.0, 6.0], [5.0, 6.0, 3.0]])
    assert pack(matrix).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 3, 1)])
def test_packing_and_unpacking_loses_nothing(generator, shape):
    matrices = symmetric(generator, *shape)
    assert torch.equal(unpack(pack(matrices)), matrices)


def test_a_rotated_tensor_has_the_rotated_eigenvector():
    along_x = torch.tensor([2.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    quarter_turn_about_z = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert rotate(along_x, quarter_turn_about_z).tolist() == [1, 2, 1, 0, 0, 0]


def test_a_mirror_in_x_flips_xy_and_xz_only():
    tensor = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert rotate(tensor, torch.diag(torch.tensor([-1.0, 1.0, 1.0]))).tolist() == [1, 2, 3, -4, -5, 6]


def test_congruence_equals_the_matrix_product_for_one_matrix_and_for_one_per_voxel(generator):
    matrices = symmetric(generator, 4, 5)
    one = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    many = torch.randn(4, 5, 3, 3, generator=generator, dtype=torch.float64)
    for factor in (one, many):
        torch.testing.assert_close(congruence(pack(matrices), factor), pack(factor @ matrices @ factor.mT))


def test_the_tensor_decides_the_dtype_of_a_rotated_tensor(generator):
    tensor = pack(symmetric(generator, 2)).float()
    assert rotate(tensor, torch.eye(3, dtype=torch.float64).expand(2, 3, 3)).dtype == torch.float32


def test_the_norm_is_that_of_the_full_matrix(generator):
    matrices = symmetric(generator, 7)
    torch.testing.assert_close(frobenius(pack(matrices)), torch.linalg.matrix_norm(matrices))


def test_the_norm_of_a_zero_tensor_has_a_finite_gradient():
    zero = torch.zeros(6, requires_grad=True)
    frobenius(zero).backward()
    assert torch.equal(zero.grad, torch.zeros(6))
