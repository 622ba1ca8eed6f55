"""MRtrix3 reads the same files and must see the same world.

One oblique field of tensors is stored in all 48 orders and senses of its axes, the b-vectors re-expressed by FSL's
rule each time. MRtrix3's own fit and ours must give the same principal directions in scanner axes.
"""

import subprocess
from itertools import permutations, product
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch

from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import angle_degrees, principal_direction
from tensorldm.imaging.frames import decode_tensor, tensor_to_frame
from tensorldm.imaging.gradients import GradientTable, read_gradients, write_fsl, write_mrtrix
from tensorldm.imaging.header import read_header
from tensorldm.imaging.nifti import read_volume
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.tensor_files import write_tensor
from tensorldm.imaging.volume import Volume

pytestmark = pytest.mark.mrtrix

SHAPE = (4, 4, 4)
ORIENTATIONS = list(product(permutations(range(3)), product((1, -1), repeat=3)))


def run(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run([*words, "-quiet", "-nthreads", "0"], check=True, capture_output=True, text=True).stdout


def rotation() -> np.ndarray:
    """20 degrees off the axes in no special direction."""
    left, _, right = np.linalg.svd(np.eye(3) + 0.35 * np.random.default_rng(5).normal(size=(3, 3)))
    turn = left @ right
    return turn * np.sign(np.linalg.det(turn))


def world_field() -> tuple[np.ndarray, np.ndarray]:
    """A fibre per voxel and twelve gradients, all in scanner axes."""
    draw = np.random.default_rng(1)
    fibres = draw.normal(size=(*SHAPE, 3))
    gradients = draw.normal(size=(13, 3))
    gradients[0] = 0
    unit = gradients / np.maximum(np.linalg.norm(gradients, axis=1, keepdims=True), 1e-9)
    return fibres / np.linalg.norm(fibres, axis=-1, keepdims=True), unit


def signal_of(fibres: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Stejskal-Tanner by hand: b is 1000, and 0 where the gradient is."""
    along = (fibres @ gradients.T) ** 2
    return 1000 * np.exp(-1000 * (3e-4 * (gradients**2).sum(axis=1) + 1.4e-3 * along))


def store(folder: Path, order: tuple[int, ...], signs: tuple[int, ...]) -> Path:
    """The field stored with axis ``a`` of the array along ``signs[a]`` times axis ``order[a]`` of an oblique frame."""
    fibres, gradients = world_field()
    frame = rotation() @ np.eye(3)[:, list(order)] @ np.diag(signs)
    affine = np.eye(4)
    affine[:3, :3] = frame @ np.diag([2.0, 2.2, 2.5])
    affine[:3, 3] = (-20, 11, 5)
    image = folder / "dwi.nii.gz"
    nibabel.save(nibabel.Nifti1Image(signal_of(fibres, gradients).astype(np.float32), affine), image)
    # FSL: voxel axes, and the first one mirrored when the determinant is positive.
    bvecs = gradients @ frame
    if np.linalg.det(affine[:3, :3]) > 0:
        bvecs[:, 0] *= -1
    np.savetxt(folder / "dwi.bvec", bvecs.T, fmt="%.9f")
    np.savetxt(folder / "dwi.bval", [np.where(gradients.any(axis=1), 1000, 0)], fmt="%d")
    return image


def fitted(volume: Volume, gradients: GradientTable) -> np.ndarray:
    """Our tensors in image axes."""
    signal = torch.from_numpy(volume.data.astype(np.float64))
    return fit_ols(signal, torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions))[0].numpy()


def principal_in_scanner(volume: Volume, gradients: GradientTable) -> torch.Tensor:
    packed = tensor_to_frame(fitted(volume, gradients), volume.space, target="scanner")
    return principal_direction(torch.from_numpy(packed))


@pytest.fixture
def fsl(tmp_path: Path) -> tuple[object, ...]:
    return "-fslgrad", tmp_path / "dwi.bvec", tmp_path / "dwi.bval"


@pytest.mark.parametrize(("order", "signs"), ORIENTATIONS)
def test_every_orientation_gives_the_principal_directions_that_mrtrix_gives(tmp_path, fsl, order, signs):
    image = store(tmp_path, order, signs)
    run("dwi2tensor", image, *fsl, tmp_path / "tensor.nii")
    run("tensor2metric", tmp_path / "tensor.nii", "-vector", tmp_path / "v1.nii", "-num", 1, "-modulate", "none")
    theirs = torch.from_numpy(nibabel.load(tmp_path / "v1.nii").get_fdata())
    volume, gradients = read_volume(image), read_gradients(image)
    ras = to_ras(volume.space)
    moved = principal_in_scanner(Volume(ras.forward(volume.data), ras.target), gradients.turned(ras.turn))
    back = ras.inverse(moved.numpy(), np.ones(ras.target.shape, bool))
    for ours in (principal_in_scanner(volume, gradients), torch.from_numpy(back)):
        assert angle_degrees(ours, theirs).max() < 0.1
        assert angle_degrees(ours, torch.from_numpy(world_field()[0])).max() < 0.1


@pytest.mark.parametrize(("order", "signs"), [((0, 1, 2), (1, 1, 1)), ((2, 0, 1), (-1, 1, 1)), ((1, 0, 2), (1, 1, 1))])
def test_a_tensor_written_for_mrtrix_is_the_one_that_mrtrix_writes(tmp_path, fsl, order, signs):
    image = store(tmp_path, order, signs)
    run("dwi2tensor", image, *fsl, tmp_path / "theirs.nii", "-ols", "-iter", 0)
    volume = read_volume(image)
    packed = fitted(volume, read_gradients(image))
    write_tensor(tmp_path / "ours.nii.gz", packed, space=volume.space, convention="mrtrix")
    theirs = read_volume(tmp_path / "theirs.nii")
    np.testing.assert_allclose(read_volume(tmp_path / "ours.nii.gz").data, theirs.data, atol=2e-9)
    np.testing.assert_allclose(decode_tensor(theirs.data, theirs.space, "mrtrix"), packed, atol=2e-9)


def gradients_according_to_mrtrix(image: Path, *options: object) -> np.ndarray:
    return np.array([line.split() for line in run("mrinfo", image, *options, "-dwgrad").splitlines()], dtype=float)


@pytest.mark.parametrize(("order", "signs"), [((0, 1, 2), (1, 1, 1)), ((2, 1, 0), (1, 1, 1)), ((1, 2, 0), (1, -1, 1))])
def test_gradients_in_the_scanner_are_those_that_mrinfo_prints(tmp_path, fsl, order, signs):
    image = store(tmp_path, order, signs)
    ours, space = read_gradients(image), read_header(image).space
    theirs = gradients_according_to_mrtrix(image, *fsl)
    np.testing.assert_allclose(ours.to_scanner(space), theirs[:, :3], atol=1e-6)
    np.testing.assert_allclose(ours.bvals, theirs[:, 3], atol=1e-3)
    write_mrtrix(tmp_path / "ours.b", ours, space=space)
    write_fsl(tmp_path / "ours.bval", tmp_path / "ours.bvec", gradients=ours, space=space)
    for options in (("-grad", tmp_path / "ours.b"), ("-fslgrad", tmp_path / "ours.bvec", tmp_path / "ours.bval")):
        np.testing.assert_allclose(gradients_according_to_mrtrix(image, *options), theirs, atol=1e-3)


def test_a_gradient_table_with_vectors_of_any_length_has_the_b_values_that_mrinfo_prints(tmp_path):
    image = store(tmp_path, (0, 1, 2), (1, 1, 1))
    table = np.column_stack([world_field()[1], np.full(13, 2000.0)])
    table[:, :3] *= np.linspace(0.3, 1.1, 13)[:, None]
    table[0, 3] = 0
    np.savetxt(tmp_path / "table.b", table)
    theirs = gradients_according_to_mrtrix(image, "-grad", tmp_path / "table.b")
    ours, space = read_gradients(image, grad=tmp_path / "table.b"), read_header(image).space
    np.testing.assert_allclose(ours.bvals, theirs[:, 3], rtol=1e-5)
    np.testing.assert_allclose(ours.to_scanner(space), theirs[:, :3], atol=1e-6)
