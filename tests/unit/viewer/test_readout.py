"""Numbers at the crosshair, against NumPy on the file itself."""

import nibabel
import numpy as np
import pytest

from tensorldm.viewer.library import Library
from tensorldm.viewer.scene import find_scene

VOXEL = (1, 4, 2)


def world_of(path, voxel=VOXEL):
    x, y, z = (nibabel.load(path).affine @ [*voxel, 1])[:3]
    return float(x), float(y), float(z)


def matrix_of(path, voxel=VOXEL):
    xx, yy, zz, xy, xz, yz = np.asarray(nibabel.load(path).dataobj, dtype=float)[voxel]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) * 1e3


def test_tensor_eigenvalues_and_directions_are_those_of_the_file(tmp_path, make_result, tensors):
    path = make_result(tmp_path, tensors())
    (read,) = Library(find_scene([tmp_path])).read_out(["r0"], world_of(path))
    full = matrix_of(path)
    values, vectors = np.linalg.eigh(full)
    assert read["inside"]
    assert [read["tensor"][name] for name in ("xx", "xy", "yz")] == pytest.approx(
        [full[0, 0], full[0, 1], full[1, 2]], abs=1e-4
    )
    assert read["eigenvalues"] == pytest.approx(values[::-1], abs=1e-4)
    assert read["md"] == pytest.approx(values.mean(), abs=1e-4)
    for index in range(3):
        assert abs(np.dot(read["vectors"][index], vectors[:, 2 - index])) == pytest.approx(1, abs=1e-3)


def test_the_same_head_stored_otherwise_reads_the_same_with_no_angle_between(tmp_path, make_result, tensors):
    packed = tensors()
    path = make_result(tmp_path / "model", packed)
    # Stored mirrored along the first axis: the voxels move, and the two components across change their sign.
    flip = np.diag([-1.0, 1, 1, 1])
    flip[0, 3] = packed.shape[0] - 1
    mirrored = packed[::-1] * np.array([1, 1, 1, -1, -1, 1], dtype=np.float32)
    make_result(tmp_path / "reference", np.ascontiguousarray(mirrored), affine=nibabel.load(path).affine @ flip)
    ours, reference = Library(find_scene([tmp_path])).read_out(["r0", "r1"], world_of(path))
    assert ours["tensor"] == pytest.approx(reference["tensor"], abs=2e-4)
    assert ours["angle"] == pytest.approx(0, abs=0.1)
    assert reference["angle"] is None


def test_a_convention_changes_nothing_of_what_is_read(tmp_path, make_result, tensors):
    path = make_result(tmp_path / "a", tensors())
    make_result(tmp_path / "b", tensors(), convention="fsl")
    first, second = Library(find_scene([tmp_path])).read_out(["r0", "r1"], world_of(path))
    assert first["tensor"] == pytest.approx(second["tensor"], abs=2e-4)


def test_outside_brain_and_grid_there_is_nothing_to_read(tmp_path, make_result, tensors):
    mask = np.ones((5, 6, 7), dtype=bool)
    mask[VOXEL] = False
    path = make_result(tmp_path, tensors(), mask=mask)
    shown = Library(find_scene([tmp_path]))
    for world in (world_of(path), (500.0, 0.0, 0.0)):
        assert shown.read_out(["r0"], world)[0]["inside"] is False
    assert shown.read_out(["r0"], world_of(path, (2, 4, 2)))[0]["inside"] is True


def test_every_voxel_is_read_at_its_own_place(tmp_path, make_result, tensors):
    mask = np.random.default_rng(1).random((5, 6, 7)) > 0.4
    path = make_result(tmp_path, tensors(), mask=mask)
    shown = Library(find_scene([tmp_path]))
    for voxel in map(tuple, np.argwhere(mask)[::7]):
        (read,) = shown.read_out(["r0"], world_of(path, voxel))
        assert read["tensor"]["xx"] == pytest.approx(matrix_of(path, voxel)[0, 0], abs=1e-4)


def test_unknown_keys_are_left_out(tmp_path, make_result, tensors):
    path = make_result(tmp_path, tensors())
    assert Library(find_scene([tmp_path])).read_out(["r7", "../x"], world_of(path)) == []
