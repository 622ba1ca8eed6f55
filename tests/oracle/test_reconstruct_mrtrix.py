"""MRtrix3 and DIPY open what ``reconstruct`` writes and see the same fibres, on oblique grids of both determinants."""

import subprocess
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tensorldm.cli import verbs  # noqa: F401  registers the verbs
from tensorldm.cli.main import app
from tensorldm.dti.maps import angle_degrees

pytestmark = pytest.mark.mrtrix

SHAPE = (9, 10, 8)
FRAMES = {"negative determinant": np.diag([-1.0, 1, 1]), "positive determinant": np.eye(3)[:, [2, 0, 1]]}


def mrtrix(*command: object) -> None:
    words = [str(word) for word in command]
    subprocess.run([*words, "-quiet", "-nthreads", "0"], check=True, capture_output=True)


def world() -> tuple[np.ndarray, np.ndarray]:
    """A tensor per voxel (3×3) and the gradients, all in scanner axes."""
    draw = np.random.default_rng(8)
    fibres = draw.normal(size=(*SHAPE, 3))
    fibres /= np.linalg.norm(fibres, axis=-1, keepdims=True)
    other = np.cross(fibres, draw.normal(size=(*SHAPE, 3)))
    other /= np.linalg.norm(other, axis=-1, keepdims=True)
    tensors = 3e-4 * np.eye(3) + sum(
        size * v[..., :, None] * v[..., None, :] for size, v in ((1.2e-3, fibres), (2e-4, other))
    )
    gradients = draw.normal(size=(13, 3))
    gradients /= np.linalg.norm(gradients, axis=1, keepdims=True)
    gradients[0] = 0
    return tensors, gradients


@pytest.fixture(params=FRAMES)
def image(request, tmp_path) -> Path:
    """The world scanned without noise on an oblique grid, b-vectors by FSL's rule, with a mask."""
    left, _, right = np.linalg.svd(np.eye(3) + 0.3 * np.random.default_rng(5).normal(size=(3, 3)))
    rotation = left @ right
    axes = rotation * np.sign(np.linalg.det(rotation)) @ FRAMES[request.param]
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = axes @ np.diag([2.0, 2.2, 2.5]), (-20, 11, 5)
    tensors, gradients = world()
    signal = 1000 * np.exp(-1000 * np.einsum("ni,xyzij,nj->xyzn", gradients, tensors, gradients))
    nibabel.save(nibabel.Nifti1Image(signal.astype(np.float32), affine), tmp_path / "dwi.nii.gz")
    nibabel.save(nibabel.Nifti1Image(np.ones(SHAPE, np.uint8), affine), tmp_path / "mask.nii.gz")
    bvecs = gradients @ axes
    positive = np.linalg.det(affine[:3, :3]) > 0
    assert positive == (request.param == "positive determinant")
    bvecs[:, 0] *= -1 if positive else 1
    np.savetxt(tmp_path / "dwi.bvec", bvecs.T, fmt="%.9f")
    np.savetxt(tmp_path / "dwi.bval", [np.where(gradients.any(axis=1), 1000, 0)], fmt="%d")
    return tmp_path / "dwi.nii.gz"


def reconstruct(image: Path, *options: str) -> Path:
    out = image.parent / "out"
    words = ["reconstruct", str(image), "-o", str(out), "--method", "minimum-norm", "--directions", "all", *options]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    return out


def worst_angle(one: np.ndarray, other: np.ndarray) -> float:
    return float(angle_degrees(torch.from_numpy(one.astype(float)), torch.from_numpy(other.astype(float))).max())


def load(path: Path) -> np.ndarray:
    return nibabel.load(path).get_fdata()


def true_v1() -> np.ndarray:
    return np.linalg.eigh(world()[0])[1][..., :, 2]


def test_mrtrix_reads_directions_and_all_six_components_as_they_are_in_the_world(image):
    out = reconstruct(image)
    vector = image.parent / "v1.nii"
    mrtrix("tensor2metric", out / "tensor.nii.gz", "-vector", vector, "-num", 1, "-modulate", "none")
    assert worst_angle(load(vector), true_v1()) < 0.1
    assert worst_angle(load(vector), load(out / "v1.nii.gz")) < 0.1
    tensors = world()[0]
    six = np.stack([tensors[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], axis=-1)
    np.testing.assert_allclose(load(out / "tensor.nii.gz"), six, atol=1e-8)
    theirs = image.parent / "theirs.nii"
    mrtrix(
        "dwi2tensor",
        image,
        theirs,
        "-ols",
        "-iter",
        0,
        "-fslgrad",
        *(image.parent / f"dwi.{e}" for e in ("bvec", "bval")),
    )
    np.testing.assert_allclose(load(out / "tensor.nii.gz"), load(theirs), atol=1e-8)


def test_mrtrix_gives_the_same_fa_and_md(image):
    out = reconstruct(image)
    mrtrix("tensor2metric", out / "tensor.nii.gz", "-fa", image.parent / "fa.nii", "-adc", image.parent / "md.nii")
    np.testing.assert_allclose(load(out / "fa.nii.gz"), load(image.parent / "fa.nii"), atol=1e-5)
    np.testing.assert_allclose(load(out / "md.nii.gz"), load(image.parent / "md.nii"), atol=1e-9)


def test_dipys_convention_is_what_dipy_fits(image):
    from dipy.core.gradients import gradient_table
    from dipy.reconst.dti import TensorModel, lower_triangular

    out = reconstruct(image, "--convention", "dipy")
    bvals, bvecs = np.loadtxt(image.parent / "dwi.bval"), np.loadtxt(image.parent / "dwi.bvec").T
    if np.linalg.det(nibabel.load(image).affine[:3, :3]) > 0:
        bvecs[:, 0] *= -1  # DIPY takes vectors as voxel axes, without FSL's mirror
    fit = TensorModel(gradient_table(bvals, bvecs=bvecs), fit_method="OLS").fit(load(image))
    np.testing.assert_allclose(load(out / "tensor.nii.gz"), lower_triangular(fit.quadratic_form), atol=1e-8)
    assert worst_angle(load(out / "v1.nii.gz"), fit.evecs[..., 0]) < 0.1


def test_fsls_convention_is_what_dtifit_would_fit_from_the_files_own_vectors(image):
    out = reconstruct(image, "--convention", "fsl")
    bvecs = np.loadtxt(image.parent / "dwi.bvec").T
    design = np.stack(
        [(2 - (i == j)) * bvecs[:, i] * bvecs[:, j] for i, j in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))]
    )
    signal = load(image)
    adc = -np.log(signal[..., 1:] / signal[..., :1]) / 1000
    expected = adc @ np.linalg.pinv(design[:, 1:].T).T
    np.testing.assert_allclose(load(out / "tensor.nii.gz"), expected, atol=1e-8)


def test_the_nifti_form_says_what_it_is(image):
    out = reconstruct(image, "--convention", "nifti")
    header = nibabel.load(out / "tensor.nii.gz").header
    assert header["intent_code"] == 1005
    assert header.get_data_shape() == (*SHAPE, 1, 6)
