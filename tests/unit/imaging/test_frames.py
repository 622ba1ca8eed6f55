import numpy as np
import pytest

from tensorldm.components import CONVENTIONS
from tensorldm.errors import DataError
from tensorldm.imaging.frames import decode_tensor, directions_to_frame, encode_tensor, tensor_to_frame

ROWS, COLUMNS = (0, 1, 2, 0, 0, 1), (0, 1, 2, 1, 2, 2)


def along(direction):
    """A tensor that only diffuses along one direction."""
    outer = np.multiply.outer(direction, direction)
    return (
        outer[..., ROWS, COLUMNS] if outer.ndim == 2 else np.stack([np.outer(d, d)[ROWS, COLUMNS] for d in direction])
    )


@pytest.mark.parametrize("mirrored", [True, False])
def test_the_first_voxel_axis_is_the_affines_first_column_in_the_scanner_and_mirrored_in_fsl(oblique, mirrored):
    space = oblique(mirrored=mirrored)
    first = np.array([[1.0, 0, 0]])
    column = space.affine[:3, 0] / np.linalg.norm(space.affine[:3, 0])
    np.testing.assert_allclose(directions_to_frame(first, space, target="scanner")[0], column, atol=1e-12)
    # FSL mirrors the first axis when the determinant is positive ("neurological" storage).
    expected = first if mirrored else -first
    np.testing.assert_allclose(directions_to_frame(first, space, target="fsl"), expected)


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("target", ["scanner", "fsl", "image"])
def test_a_tensors_principal_direction_goes_with_the_frame(oblique, mirrored, target):
    space = oblique(mirrored=mirrored)
    directions = np.random.default_rng(0).normal(size=(20, 3))
    moved = directions_to_frame(directions, space, target=target)
    np.testing.assert_allclose(tensor_to_frame(along(directions), space, target=target), along(moved), atol=1e-12)
    back = directions_to_frame(moved, space, source=target, target="image")
    np.testing.assert_allclose(back, directions, atol=1e-12)


def test_a_mirror_of_x_changes_the_sign_of_the_two_off_diagonals_that_hold_x(oblique):
    packed = np.array([1.0, 2, 3, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(
        tensor_to_frame(packed, oblique(mirrored=False), target="fsl"), [1.0, 2, 3, -0.1, -0.2, 0.3]
    )


@pytest.mark.parametrize("mirrored", [True, False])
@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_decodes_what_it_encodes(oblique, name, mirrored):
    space = oblique(mirrored=mirrored)
    packed = np.random.default_rng(0).normal(size=(*space.shape, 6))
    stored = encode_tensor(packed, space, name)
    np.testing.assert_allclose(decode_tensor(stored, space, name), packed, atol=1e-12)


def test_each_convention_has_its_order_on_a_grid_where_all_frames_agree():
    from tensorldm.imaging.volume import Space

    # Mirrored in two axes: the determinant is positive, so only FSL's frame differs, by the sign of xy and xz.
    space = Space((1, 1, 1), np.diag([2.0, 2, 2, 1]))
    packed = np.array([11.0, 22, 33, 12, 13, 23]).reshape(1, 1, 1, 6)
    assert encode_tensor(packed, space, "mrtrix").ravel().tolist() == [11, 22, 33, 12, 13, 23]
    assert encode_tensor(packed, space, "fsl").ravel().tolist() == [11, -12, -13, 22, 23, 33]
    assert encode_tensor(packed, space, "dipy").ravel().tolist() == [11, 12, 22, 13, 23, 33]
    assert encode_tensor(packed, space, "nifti").shape == (1, 1, 1, 1, 6)


def test_an_unknown_convention_and_a_wrong_shape_are_told(oblique):
    space = oblique()
    with pytest.raises(DataError, match=r"no tensor convention 'ants'\. Give one of mrtrix, fsl, dipy, nifti"):
        encode_tensor(np.zeros((*space.shape, 6)), space, "ants")
    with pytest.raises(DataError, match=r"'nifti' convention has shape \(6, 5, 4, 1, 6\), found \(6, 5, 4, 6\)"):
        decode_tensor(np.zeros((*space.shape, 6)), space, "nifti")
