import subprocess

import numpy as np
import pytest

from tensorldm.imaging.nifti import read_volume, write_mask
from tensorldm.imaging.volume import Space
from tensorldm.tracts.overlap import dice, visited, visits
from tensorldm.tracts.streamlines import Streamlines
from tensorldm.tracts.tck import write_tck


def test_a_straight_streamline_visits_every_voxel_on_its_way_once():
    space = Space((10, 4, 4), np.diag([2.0, 2, 2, 1]))
    lines = Streamlines.of([np.array([[0.0, 2, 2], [18, 2, 2]]), np.array([[18.0, 2, 2], [0, 2, 2], [18, 2, 2]])])
    found = visits(lines, space)
    assert (found[:, 1, 1] == 2).all()
    assert found.sum() == 20


def test_what_leaves_the_grid_is_not_counted():
    space = Space((3, 3, 3), np.eye(4))
    found = visits(Streamlines.of([np.array([[-5.0, 1, 1], [10, 1, 1]])]), space)
    assert found.sum() == 3


def test_one_stray_streamline_is_no_part_of_a_large_bundle():
    space = Space((10, 4, 4), np.eye(4))
    bundle = [np.array([[0.0, 1, 1], [9, 1, 1]])] * 150
    stray = np.array([[0.0, 3, 3], [9, 3, 3]])
    found = visited(Streamlines.of([*bundle, stray]), space)
    assert found[:, 1, 1].all()
    assert found.sum() == 10


def test_dice_of_halves():
    a, b = np.zeros((2, 4, 1, 1), dtype=bool)
    a[:2], b[1:3] = True, True
    assert dice(a, b) == pytest.approx(0.5)
    assert dice(a, a) == 1
    assert np.isnan(dice(np.zeros_like(a), np.zeros_like(a)))


@pytest.mark.mrtrix
def test_mrtrix_counts_the_same_visits(bundle_around, arc, tmp_path):
    axes = np.array([[-2.0, 0.3, 0], [0.3, 2, 0], [0, 0, 2.5]])
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = axes, [55, -15, -15]
    space = Space((34, 34, 16), affine)
    bundle = bundle_around(arc, count=100)
    write_tck(tmp_path / "bundle.tck", bundle)
    write_mask(tmp_path / "grid.nii", np.ones(space.shape, dtype=bool), space=space)
    subprocess.run(
        ["tckmap", tmp_path / "bundle.tck", tmp_path / "map.nii", "-template", tmp_path / "grid.nii", "-quiet"],
        check=True,
    )
    theirs, ours = read_volume(tmp_path / "map.nii").data, visits(bundle, space)
    assert abs(theirs.sum() - ours.sum()) < 0.05 * theirs.sum()  # a corner more or less
    assert np.corrcoef(theirs.ravel(), ours.ravel())[0, 1] > 0.98
