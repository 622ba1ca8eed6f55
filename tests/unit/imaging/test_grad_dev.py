import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.grad_dev import read_grad_dev
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.nifti import write_volume
from tensorldm.imaging.volume import Volume


def played_out(nine, direction):
    """HCP's own words: L = reshape(grad_dev, 3, 3) by columns; v = (I + L) * bvec."""
    return (np.eye(3) + np.reshape(nine, (3, 3), order="F")) @ direction


@pytest.mark.parametrize("mirrored", [True, False])
def test_the_gradient_played_out_is_the_same_in_every_frame(tmp_path, oblique, mirrored):
    space = oblique((4, 3, 2), mirrored=mirrored)
    stored = np.random.default_rng(0).normal(scale=0.05, size=(4, 3, 2, 9)).astype(np.float32)
    write_volume(tmp_path / "grad_dev.nii.gz", Volume(stored, space))
    field = read_grad_dev(tmp_path / "grad_dev.nii.gz", space)
    fsl = np.array([0.6, 0.0, 0.8])
    mirror = np.array([1.0 if mirrored else -1.0, 1, 1])
    in_image = played_out(field.data[1, 2, 0], fsl * mirror)
    np.testing.assert_allclose(in_image, played_out(stored[1, 2, 0], fsl) * mirror, atol=1e-6)
    grid = working_grid(space)
    moved = grid.forward_grad_dev(field)
    place = np.linalg.inv(moved.space.affine) @ space.affine @ [1, 2, 0, 1]
    x, y, z = np.rint(place[:3]).astype(int)
    in_working = played_out(moved.data[x, y, z], grid.turn @ (fsl * mirror))
    np.testing.assert_allclose(in_working, grid.turn @ in_image, atol=1e-6)


def test_a_field_of_another_grid_or_shape_is_refused(tmp_path, oblique):
    write_volume(tmp_path / "a.nii.gz", Volume(np.zeros((4, 3, 2, 9), np.float32), oblique((4, 3, 2))))
    write_volume(tmp_path / "b.nii.gz", Volume(np.zeros((4, 3, 2, 6), np.float32), oblique((4, 3, 2))))
    with pytest.raises(DataError, match=r"a\.nii\.gz: its grid \(4, 3, 2\) is not the series' \(4, 3, 3\)"):
        read_grad_dev(tmp_path / "a.nii.gz", oblique((4, 3, 3)))
    with pytest.raises(DataError, match="expected nine volumes"):
        read_grad_dev(tmp_path / "b.nii.gz", oblique((4, 3, 2)))
