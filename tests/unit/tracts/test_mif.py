"""MRtrix3 itself says whether an image in its own format is the image."""

import subprocess

import nibabel
import numpy as np
import pytest

from tensorldm.imaging.nifti import write_volume
from tensorldm.imaging.volume import Space, Volume
from tensorldm.tracts.mif import write_mif

TURN = np.array([[0.96, -0.28, 0.0], [0.2688, 0.9216, -0.28], [0.0784, 0.2688, 0.96]])
FRAMES = {
    "plain": np.diag([2.0, 2.0, 2.5]),
    "mirrored": np.diag([-2.0, 2.0, 2.5]),
    "permuted": np.array([[0, 0, 2.5], [-2.0, 0, 0], [0, 2.0, 0]]),
    "oblique": TURN @ np.diag([-2.0, 2.0, 2.5]),
}


@pytest.mark.mrtrix
@pytest.mark.parametrize("frame", FRAMES)
def test_mrtrix_reads_the_numbers_and_places_that_it_reads_from_nifti(frame, tmp_path):
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = FRAMES[frame], (-31.7, 12.25, 7.0)
    data = np.random.default_rng(0).normal(size=(5, 6, 7, 4)).astype(np.float32)
    volume = Volume(data, Space(data.shape[:3], affine))
    write_mif(tmp_path / "own.mif", volume)
    write_volume(tmp_path / "plain.nii", volume)
    for name in ("own.mif", "plain.nii"):
        command = ["mrconvert", tmp_path / name, tmp_path / f"{name}.out.nii", "-strides", "1,2,3,4", "-quiet"]
        subprocess.run(command, check=True, timeout=60)
    own, plain = (nibabel.load(tmp_path / f"{name}.out.nii") for name in ("own.mif", "plain.nii"))
    assert np.array_equal(np.asarray(own.dataobj), np.asarray(plain.dataobj))
    assert np.allclose(own.affine, plain.affine, atol=1e-6)


@pytest.mark.mrtrix
def test_the_numbers_of_a_voxel_lie_side_by_side(tmp_path):
    write_mif(tmp_path / "own.mif", Volume(np.zeros((3, 4, 5, 6), np.float32), Space((3, 4, 5), np.eye(4))))
    answer = subprocess.run(
        ["mrinfo", tmp_path / "own.mif", "-strides"], check=True, timeout=60, capture_output=True, text=True
    )
    assert answer.stdout.split() == ["2", "3", "4", "1"]
