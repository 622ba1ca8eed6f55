"""Accuracy of the closed form where closed forms are known to fail, against float64 ``torch.linalg.eigh``."""

import pytest
import torch

from tensorldm.dti.eigen import compose, eigen, eigenvalues
from tensorldm.dti.packing import pack, unpack

SPECTRA = {
    "orthotropic": (3.0, 2.0, 1.0),
    "isotropic": (1.0, 1.0, 1.0),
    "prolate": (2.0, 1.0, 1.0),
    "oblate": (2.0, 2.0, 1.0),
    "nearly prolate": (2.0, 1.0 + 1e-7, 1.0),
    "nearly isotropic": (1.0 + 1e-6, 1.0, 1.0 - 1e-6),
    "zero": (0.0, 0.0, 0.0),
    "rank one": (1.0, 0.0, 0.0),
    "rank two": (1.0, 1.0, 0.0),
    "negative definite": (-1.0, -2.0, -2.0),
    "traceless": (1.0, 0.0, -1.0),
    "tiny": (3e-25, 1e-25, 1e-26),
    "huge": (3e25, 1e25, 1e24),
}
TOLERANCE = {torch.float32: 1e-6, torch.float64: 2e-15}


def rotations(generator: torch.Generator, count: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(count, 3, 3, generator=generator, dtype=torch.float64))[0]


def tensors_with(spectrum: tuple[float, ...], generator: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
    """Random orientations, and the axis-aligned ones where entries are exactly zero."""
    axes = torch.stack([torch.eye(3, dtype=torch.float64).roll(turn, dims=0) for turn in range(3)])
    frames = torch.cat((rotations(generator, 300), axes))
    return pack((frames * torch.tensor(spectrum, dtype=torch.float64)) @ frames.mT).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA.keys())
def test_eigenvalues_and_frames_are_accurate_to_rounding_for_every_shape_of_tensor(spectrum, dtype, generator):
    tensors = tensors_with(spectrum, generator, dtype)
    exact = torch.linalg.eigvalsh(unpack(tensors.double())).flip(-1)
    size = exact.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    values, vectors = eigen(tensors)

    assert (values.double() - exact).abs().max() <= TOLERANCE[dtype] * size
    assert (eigenvalues(tensors).double() - exact).abs().max() <= TOLERANCE[dtype] * size
    assert (compose(values, vectors).double() - tensors.double()).abs().max() <= TOLERANCE[dtype] * size
    wide = vectors.double()
    assert (wide.mT @ wide - torch.eye(3)).abs().max() <= TOLERANCE[dtype]
    assert torch.linalg.det(wide).min() > 0.999


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_sphere_with_errors_of_one_unit_in_the_last_place_is_decomposed_too(dtype):
    one = torch.tensor(6.2095786602713, dtype=dtype)
    up, down = torch.nextafter(one, 2 * one), torch.nextafter(one, 0 * one)
    tiny = one * torch.finfo(dtype).eps / 2
    diagonals = torch.cartesian_prod(*[torch.stack((down, one, up))] * 3)
    off_diagonals = torch.cartesian_prod(*[torch.stack((-tiny, 0 * tiny, tiny))] * 3)
    tensors = torch.cat(
        (diagonals.repeat_interleave(len(off_diagonals), dim=0), off_diagonals.repeat(len(diagonals), 1)), dim=1
    )
    for signed in (tensors, -tensors):
        values, vectors = eigen(signed)
        assert (vectors.mT @ vectors - torch.eye(3)).abs().max() <= TOLERANCE[dtype]
        assert (compose(values, vectors) - signed).abs().max() <= TOLERANCE[dtype] * one
        assert (eigenvalues(signed) - values).abs().max() <= TOLERANCE[dtype] * one


def test_eigenvalues_descend(generator):
    values = eigenvalues(torch.randn(500, 6, generator=generator))
    assert (values.diff(dim=-1) <= 0).all()


def test_columns_are_eigenvectors(generator):
    tensors = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    values, vectors = eigen(tensors)
    torch.testing.assert_close(unpack(tensors) @ vectors, vectors * values.unsqueeze(-2))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (2, 3, 4)])
def test_any_batch_shape_is_kept(generator, shape):
    tensors = torch.randn(*shape, 6, generator=generator)
    values, vectors = eigen(tensors)
    assert values.shape == (*shape, 3)
    assert vectors.shape == (*shape, 3, 3)
    torch.testing.assert_close(eigenvalues(tensors), values)


def test_memory_layout_of_the_tensor_does_not_matter(generator):
    tensors = torch.randn(6, 40, generator=generator).mT
    assert torch.equal(eigen(tensors)[1], eigen(tensors.contiguous())[1])


def test_a_not_a_number_stays_in_its_own_voxel(generator):
    tensors = torch.randn(3, 6, generator=generator)
    tensors[1, 4] = torch.nan
    values, vectors = eigen(tensors)
    assert values[1].isnan().all()
    assert values[[0, 2]].isfinite().all()
    assert vectors[[0, 2]].isfinite().all()


def test_half_precision_is_widened_before_the_work():
    assert eigenvalues(torch.ones(2, 6, dtype=torch.bfloat16)).dtype == torch.float32


def test_the_gradient_of_the_eigenvalues_is_right(generator):
    tensors = torch.randn(5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(eigenvalues, tensors)
    assert torch.autograd.gradcheck(lambda x: eigen(x)[0], tensors)


@pytest.mark.parametrize("name", ["isotropic", "prolate", "oblate", "zero"])
def test_symmetric_functions_of_equal_eigenvalues_have_the_right_gradient(name, generator):
    tensors = tensors_with(SPECTRA[name], generator, torch.float64)[-5:].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: eigenvalues(x).square().sum(dim=-1), tensors)


def test_eigenvectors_refuse_to_be_differentiated(generator):
    _, vectors = eigen(torch.randn(6, generator=generator, requires_grad=True))
    assert not vectors.requires_grad
