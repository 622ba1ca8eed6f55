import subprocess

import numpy as np
import pytest
import torch

from tensorldm.dti.eigen import compose
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, principal_direction
from tensorldm.dti.packing import rotate
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.nifti import read_volume, write_volume
from tensorldm.imaging.volume import Space, Volume
from tensorldm.tracts.harmonics import basis, count, quadrature
from tensorldm.tracts.odf import principal_peak, tensor_odf

SHAPES = [[1.2, 0.5, 0.5], [1.7, 0.3, 0.2], [1.7, 0.1, -0.05], [1.0, 0.8, 0.3], [0.85, 0.7, 0.65]]


def random_rotations(count, seed=0):
    q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(count, 3, 3)))
    return torch.from_numpy(q * np.sign(np.linalg.det(q))[:, None, None])


def tensors(turns):
    shapes = torch.tensor(SHAPES, dtype=torch.float64).repeat(len(turns) // len(SHAPES) + 1, 1)[: len(turns)]
    return compose(shapes * 1e-3, turns)


def climbed_to(coefficients, start, *, rounds=40):
    """The peak of each ODF, by searching ever smaller neighbourhoods of a start that is up to 20° off."""
    at, reach = start.clone(), np.radians(20)
    for _ in range(rounds):
        angle = torch.arange(0, 2 * np.pi, np.pi / 6, dtype=at.dtype)
        u = torch.linalg.cross(at, torch.where(at[:, :1].abs() < 0.8, torch.eye(3)[0], torch.eye(3)[1]).to(at))
        u = u / u.norm(dim=-1, keepdim=True)
        w = torch.linalg.cross(at, u)
        ring = at[:, None] * np.cos(reach) + (
            u[:, None] * angle.cos()[:, None] + w[:, None] * angle.sin()[:, None]
        ) * np.sin(reach)
        tried = torch.cat([at[:, None], ring], dim=1)
        values = torch.from_numpy(basis(tried.reshape(-1, 3).numpy())).reshape(*tried.shape[:2], -1)
        best = (values * coefficients[:, None]).sum(-1).argmax(dim=1)
        at = tried[torch.arange(len(at)), best]
        reach *= 0.85
    return at / at.norm(dim=-1, keepdim=True)


def test_the_peak_is_v1_within_half_a_degree_for_every_shape_and_orientation():
    packed = tensors(random_rotations(30))
    v1 = principal_direction(packed)
    off = random_rotations(30, seed=1)[:, :, 0] * 0.2
    peak = climbed_to(tensor_odf(packed), (v1 + off) / (v1 + off).norm(dim=-1, keepdim=True))
    assert angle_degrees(peak, v1).max() < 0.5


def test_the_height_along_v1_is_the_fa():
    packed = tensors(random_rotations(20))
    values = torch.from_numpy(basis(principal_direction(packed).numpy()))
    assert torch.allclose((values * tensor_odf(packed)).sum(-1), fractional_anisotropy(packed), atol=1e-9)


def test_a_turned_tensor_has_the_turned_odf():
    turn = random_rotations(1, seed=5)[0]
    packed = tensors(random_rotations(10))
    directions = quadrature()[0][::7]
    here = tensor_odf(packed).numpy() @ basis(directions).T
    there = tensor_odf(rotate(packed, turn)).numpy() @ basis(directions @ turn.numpy().T).T
    # The rule is exact to degree 47; what sharp lobes have beyond it is below a thousandth of their height.
    assert np.abs(here - there).max() < 1e-3


def test_a_sphere_and_an_empty_or_impossible_tensor_have_none():
    packed = torch.tensor([[1e-3, 1e-3, 1e-3, 0, 0, 0], [0.0] * 6, [-1e-3, -1e-3, -2e-3, 0, 0, 0]])
    assert tensor_odf(packed).abs().max() < 1e-4
    assert tensor_odf(packed[:0]).shape == (0, count())


def test_the_sharpened_lobe_is_narrower_than_the_diffusion_odf():
    packed = compose(torch.tensor([[1.2e-3, 0.5e-3, 0.5e-3]], dtype=torch.float64), torch.eye(3)[None].double())
    angle = np.radians(np.arange(0, 91, 0.5))
    profile = tensor_odf(packed).numpy()[0] @ basis(np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1)).T
    plain = (np.cos(angle) ** 2 + 2.4 * np.sin(angle) ** 2) ** -1.5
    half = [np.degrees(angle[np.argmax(each < each[0] / 2)]) for each in (profile, plain)]
    assert 17 < half[0] < 21
    assert 38 < half[1] < 42


def test_quadrature_integrates_the_basis_to_unity():
    directions, weights = quadrature()
    values = basis(directions)
    assert np.allclose(values.T @ (values * weights[:, None]), np.eye(count()), atol=1e-10)


def test_the_peak_vector_is_v1_as_long_as_the_fa():
    packed = tensors(random_rotations(10))
    peak = principal_peak(packed)
    assert torch.allclose(peak.norm(dim=-1), fractional_anisotropy(packed))
    assert angle_degrees(peak, principal_direction(packed)).max() < 1e-6


FRAMES = {
    "RAS": np.eye(3),
    "LAS": np.diag([-1.0, 1, 1]),
    "PSR": np.array([[0.0, 0, 1], [-1, 0, 0], [0, 1, 0]]),
    "oblique": np.diag([-1.0, 1, 1]) @ random_rotations(1, seed=3)[0].numpy(),
}


@pytest.mark.mrtrix
@pytest.mark.parametrize("frame", FRAMES)
def test_mrtrix_finds_the_peak_at_v1_in_every_frame(frame, tmp_path):
    axes = FRAMES[frame]
    packed = tensors(random_rotations(27)).reshape(3, 3, 3, 6).numpy()
    affine = np.eye(4)
    affine[:3, :3] = axes * 2
    space = Space((3, 3, 3), affine)
    world = torch.from_numpy(tensor_to_frame(packed, space, target="scanner"))
    odf = tensor_odf(world.reshape(-1, 6)).reshape(3, 3, 3, -1).numpy()
    write_volume(tmp_path / "odf.nii", Volume(odf.astype(np.float32), space))
    command = ["sh2peaks", tmp_path / "odf.nii", tmp_path / "peaks.nii", "-num", "1", "-quiet", "-nthreads", "0"]
    subprocess.run(command, check=True)
    peaks = torch.from_numpy(read_volume(tmp_path / "peaks.nii").data).double()
    v1 = torch.from_numpy(principal_direction(torch.from_numpy(packed)).numpy() @ axes.T)
    assert angle_degrees(peaks, v1).max() < 0.5
    assert torch.allclose(peaks.norm(dim=-1), fractional_anisotropy(world), atol=1e-3)


@pytest.mark.mrtrix
def test_mrtrix_reads_the_same_function(tmp_path):
    directions = random_rotations(20, seed=2)[:, :, 0].numpy()
    coefficients = np.random.default_rng(0).normal(size=(1, 1, 1, count())).astype(np.float32)
    write_volume(tmp_path / "sh.nii", Volume(coefficients, Space((1, 1, 1), np.eye(4))))
    np.savetxt(tmp_path / "directions.txt", directions)
    command = ["sh2amp", tmp_path / "sh.nii", tmp_path / "directions.txt", tmp_path / "amp.nii", "-quiet"]
    subprocess.run(command, check=True)
    amplitudes = read_volume(tmp_path / "amp.nii").data.ravel()
    assert np.allclose(amplitudes, basis(directions) @ coefficients.ravel(), atol=1e-4)
