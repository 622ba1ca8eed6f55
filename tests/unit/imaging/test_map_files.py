"""Map images: the values of the maps, colours by the world's axes, and MRtrix3 agrees."""

import json
import subprocess

import nibabel
import numpy as np
import pytest
import torch

from tensorldm.dti.maps import fractional_anisotropy, mean_diffusivity
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.map_files import write_maps
from tensorldm.imaging.tensor_files import write_tensor
from tensorldm.imaging.volume import Space

SHAPE = (4, 3, 2)


@pytest.fixture
def space() -> Space:
    """A sagittal, tilted grid: the array's first axis runs to the front, its second to the top."""
    tilt = np.radians(10)
    turn = np.array([[np.cos(tilt), -np.sin(tilt), 0], [np.sin(tilt), np.cos(tilt), 0], [0, 0, 1]])
    affine = np.eye(4)
    affine[:3, :3] = turn @ np.array([[0, 0, -2.0], [2.0, 0, 0], [0, 2.0, 0]])
    return Space(SHAPE, affine)


@pytest.fixture
def packed() -> np.ndarray:
    roots = np.random.default_rng(3).normal(scale=0.02, size=(*SHAPE, 3, 3))
    matrices = roots @ np.swapaxes(roots, -1, -2) + 2e-4 * np.eye(3)
    pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
    return np.stack([matrices[..., i, j] for i, j in pairs], axis=-1).astype(np.float32)


@pytest.fixture
def mask() -> np.ndarray:
    mask = np.ones(SHAPE, dtype=bool)
    mask[0] = False
    return mask


def read(path) -> np.ndarray:
    return np.asarray(nibabel.load(path).dataobj)


def test_maps_hold_the_values_of_their_formulas_and_nothing_outside_the_mask(tmp_path, packed, space, mask):
    paths = write_maps(tmp_path, packed, space=space, mask=mask)
    assert [path.name.split(".")[0] for path in paths] == ["fa", "md", "rd", "ad", "colour_fa", "v1"]
    inside = torch.from_numpy(packed[mask])
    np.testing.assert_allclose(read(tmp_path / "fa.nii.gz")[mask], fractional_anisotropy(inside), atol=1e-5)
    np.testing.assert_allclose(read(tmp_path / "md.nii.gz")[mask], mean_diffusivity(inside), atol=1e-8)
    assert all(not read(path)[~mask].any() for path in paths)


def test_a_left_right_fibre_is_red_on_every_grid(tmp_path, space, mask):
    in_world = np.broadcast_to(np.float32([1.7e-3, 3e-4, 3e-4, 0, 0, 0]), (*SHAPE, 6)).copy()
    write_maps(tmp_path, tensor_to_frame(in_world, space, source="scanner", target="image"), space=space, mask=mask)
    colour = read(tmp_path / "colour_fa.nii.gz")[mask]
    assert colour[:, 0].min() > 0.7
    assert np.abs(colour[:, 1:]).max() < 1e-3
    np.testing.assert_allclose(np.abs(read(tmp_path / "v1.nii.gz")[mask]), [[1, 0, 0]] * mask.sum(), atol=1e-3)


def test_sidecars_tell_units_and_frame(tmp_path, packed, space, mask):
    write_maps(tmp_path, packed, space=space, mask=mask)
    assert json.loads((tmp_path / "md.json").read_text())["Units"] == "mm^2/s"
    assert json.loads((tmp_path / "v1.json").read_text())["Frame"] == "scanner"


@pytest.mark.mrtrix
def test_mrtrix_makes_the_same_maps_of_the_written_tensor(tmp_path, packed, space, mask):
    write_tensor(tmp_path / "tensor.nii.gz", packed, space=space, convention="mrtrix")
    write_maps(tmp_path, packed, space=space, mask=mask)
    names = {"fa": "-fa", "md": "-adc", "rd": "-rd", "ad": "-ad", "v1": "-vector"}
    outputs = [word for name, option in names.items() for word in (option, str(tmp_path / f"theirs_{name}.nii"))]
    command = ["tensor2metric", "-quiet", "-modulate", "none", str(tmp_path / "tensor.nii.gz"), *outputs]
    subprocess.run(command, check=True, timeout=60)
    for name in ("fa", "md", "rd", "ad"):
        ours, theirs = read(tmp_path / f"{name}.nii.gz")[mask], read(tmp_path / f"theirs_{name}.nii")[mask]
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, err_msg=name)
    along = np.sum(read(tmp_path / "v1.nii.gz")[mask] * read(tmp_path / "theirs_v1.nii")[mask], axis=-1)
    np.testing.assert_allclose(np.abs(along), 1, atol=1e-5)
