"""A scan means the same however it is stored: all 48 orders and senses of its axes, in memory."""

from itertools import permutations, product

import nibabel
import numpy as np
import pytest
import torch

import tensorldm
from tensorldm.dti.maps import angle_degrees
from tensorldm.errors import DataError
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings

ORIENTATIONS = [
    "".join(pair[side] for pair, side in zip(order, sides, strict=True))
    for order, sides in product(permutations(("RL", "AP", "SI")), product((0, 1), repeat=3))
]


def reconstructed(scan, **options) -> Reconstruction:
    """Through the Python call, b-vectors by FSL's rule."""
    bvecs = scan.bvecs.copy()
    if np.linalg.det(scan.affine[:3, :3]) > 0:
        bvecs[:, 0] *= -1
    return tensorldm.reconstruct(
        scan.data, scan.affine, bvals=scan.bvals, bvecs=bvecs, mask=scan.mask, device="cpu", **options
    )


def in_ras(image, affine):
    """An array as it would be stored right, front, top."""
    return nibabel.as_closest_canonical(nibabel.Nifti1Image(image.astype(np.float32), affine)).get_fdata()


def oblique(scan):
    """The scan in a head turned by 20° or so: the world moves, image axes and bvecs stay."""
    left, _, right = np.linalg.svd(np.eye(3) + 0.2 * np.random.default_rng(5).normal(size=(3, 3)))
    turn = np.eye(4)
    turn[:3, :3] = left @ right
    scan.affine = turn @ scan.affine
    return scan


@pytest.fixture
def straight(scan) -> Reconstruction:
    return reconstructed(scan, method="minimum-norm")


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_the_world_does_not_change_with_the_order_in_which_it_is_stored(orientation, scan, straight):
    stored = reconstructed(scan.stored(orientation), method="minimum-norm")
    inside = torch.from_numpy(scan.mask)
    v1 = torch.from_numpy(in_ras(stored.v1, stored.affine))[inside]
    angles = angle_degrees(v1, torch.from_numpy(straight.v1).double()[inside])
    clear = torch.from_numpy(straight.fa)[inside] > 0.1
    assert angles[clear].max() < 0.1
    np.testing.assert_allclose(in_ras(stored.fa, stored.affine), straight.fa, atol=1e-5)
    for name in ("consistency", "prior_share"):
        np.testing.assert_allclose(in_ras(stored.extra[name], stored.affine), straight.extra[name], atol=1e-4)


@pytest.mark.parametrize("orientation", ["LAS", "SRA", "PIL"])
def test_a_model_draws_the_same_however_the_scan_is_stored(orientation, scan, bundle):
    settings = Settings(samples=2, steps=2)
    one = reconstructed(scan, model=bundle, settings=settings)
    other = reconstructed(scan.stored(orientation), model=bundle, settings=settings)
    np.testing.assert_allclose(in_ras(other.fa, other.affine), one.fa, atol=1e-4)
    np.testing.assert_allclose(in_ras(other.extra["md_high"], other.affine), one.extra["md_high"], atol=1e-8)


def test_in_an_oblique_head_directions_turn_with_the_world(scan, straight):
    turned = reconstructed(oblique(scan), method="minimum-norm")
    turn = turned.space.axes @ straight.space.axes.T
    expected = torch.from_numpy(straight.v1[scan.mask].astype(np.float64) @ turn.T)
    angles = angle_degrees(torch.from_numpy(turned.v1[scan.mask]).double(), expected)
    assert angles[torch.from_numpy(straight.fa[scan.mask]) > 0.1].max() < 0.1


def test_the_python_call_gives_arrays_and_leaves_the_disk_alone(scan, truth, tmp_path, monkeypatch):
    def no_writing(*_arguments, **_more):
        raise AssertionError("the call wrote to the disk")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tensorldm.imaging.atomic.writing", no_writing)
    result = reconstructed(scan, settings=Settings(directions="all"))
    assert isinstance(result, Reconstruction)
    assert result.notes["Method"] != "minimum-norm" or "No trained model" in result.warnings[0]
    assert not list(tmp_path.iterdir())
    np.testing.assert_array_equal(result.affine, scan.affine)
    error = np.abs(np.moveaxis(result.tensor, -1, 0) - truth)[:, scan.mask]
    assert np.median(error) < 5e-5  # the noise of an SNR of 100
    values, vectors = result.eigen()
    np.testing.assert_allclose(values[..., 0], result.map("ad"), atol=1e-9)
    assert np.abs((vectors[..., :, 0] * result.v1).sum(axis=-1))[scan.mask] == pytest.approx(1)


def test_a_right_tensor_is_as_consistent_with_the_scan_as_its_noise_allows(scan):
    result = reconstructed(scan, settings=Settings(directions="all"))
    assert result.notes["NoiseSigma"] == pytest.approx(4, rel=0.15)
    assert result.volumes == (0, 6, 1, 2, 3, 4, 5, 7, 8, 9, 10)
    # Nine directions and six unknowns: a third of the residual is left.
    assert 0.3 < np.median(result.extra["consistency"][scan.mask]) < 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bvals": np.zeros(5)}, r"13 volumes, b-values of shape \(5,\)"),
        ({"bvecs": np.zeros((3, 13))}, "give `bvecs.T`"),
        ({"affine": np.zeros((4, 4))}, "no invertible 4 × 4 matrix"),
        ({"affine": np.full((4, 4), np.nan)}, "no invertible 4 × 4 matrix"),
        ({"dwi": np.ones((12, 13, 11, 13), dtype=np.complex64)}, "complex64, expected a 4D series of magnitudes"),
        ({"bvals": np.full(13, np.nan)}, "no gradients"),
        ({"mask": np.zeros((12, 13, 11), dtype=bool)}, "0 voxels"),
        ({"mask": np.full((12, 13, 11), 0.4)}, "0 voxels"),
        ({"mask": np.ones((12, 13, 10))}, "does not fit"),
        ({"dwi": np.full((12, 13, 11, 13), np.nan)}, "NaN"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, words, scan):
    given = {"dwi": scan.data, "affine": scan.affine, "bvals": scan.bvals, "bvecs": scan.bvecs, "mask": scan.mask}
    with pytest.raises(DataError, match=words):
        tensorldm.reconstruct(**{**given, **change})
