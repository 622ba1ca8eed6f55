"""Raw scans of four vendors: brains are found, gradient signs verified, and the way to 2 mm and back is measured."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy import ndimage

from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, principal_direction
from tensorldm.imaging.flips import UNTESTABLE, check_flips, describe
from tensorldm.imaging.gradients import GradientTable, read_gradients
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.mask import find_brain, mean_b0
from tensorldm.imaging.nifti import check_finite, check_not_empty, read_volume
from tensorldm.imaging.volume import Volume

pytestmark = pytest.mark.real

WHOLE_BRAINS = ["toshiba_ortho", "toshiba_oblique", "philips_vanderbilt_b2000", "siemens_prisma_supine"]
SLABS = ["uih_PA", "philips_nottingham"]


class Scan(NamedTuple):
    volume: Volume
    gradients: GradientTable
    mask: np.ndarray


@cache
def read(folder: Path) -> Scan:
    image = folder / "dwi.nii.gz"
    volume, gradients = read_volume(image), read_gradients(image)
    check_finite(volume, image)
    check_not_empty(volume, image)
    return Scan(volume, gradients, find_brain(mean_b0(volume, gradients)))


@pytest.fixture
def scan(request: pytest.FixtureRequest, real_data: Path) -> Scan:
    return read(real_data / "real" / request.param)


def fitted(volume: Volume, gradients: GradientTable, mask: np.ndarray) -> np.ndarray:
    packed = np.zeros((*mask.shape, 6), dtype=np.float32)
    table = torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions)
    packed[mask] = fit_ols(torch.from_numpy(volume.data[mask]), *table)[0].numpy()
    return packed


@pytest.mark.parametrize("scan", WHOLE_BRAINS, indirect=True)
def test_the_brain_has_the_size_of_a_brain_and_one_piece(scan):
    millilitres = scan.mask.sum() * np.prod(scan.volume.space.voxel_size) / 1000
    assert 1000 < millilitres < 1600
    assert ndimage.label(scan.mask)[1] == 1


@pytest.mark.parametrize("scan", SLABS, indirect=True)
def test_a_slab_is_brain_from_its_first_slice(scan):
    area = scan.mask.sum(axis=(0, 1)) * np.prod(scan.volume.space.voxel_size[:2]) / 100
    assert area[0] > 100, "cm²"


@pytest.mark.parametrize("scan", WHOLE_BRAINS + SLABS, indirect=True)
def test_gradient_signs_are_verified_as_they_are_and_a_flip_is_found_with_its_mend(scan):
    right = check_flips(scan.volume, scan.gradients, mask=scan.mask)
    assert right.status == "verified"
    assert right.margin > 0.08
    flipped = scan.gradients.turned(np.diag([-1.0, 1, 1]))
    wrong = check_flips(scan.volume, flipped, mask=scan.mask)
    assert wrong.status == "suspect"
    assert describe(wrong.correction) == "-x, y, z"


@pytest.mark.parametrize("scan", ["uih_PA"], indirect=True)
def test_exchanged_axes_are_found_and_four_volumes_are_never_passed(scan):
    swapped = scan.gradients.turned(np.eye(3)[[1, 0, 2]])
    assert describe(check_flips(scan.volume, swapped, mask=scan.mask).correction) == "y, x, z"
    four = [0, 1, 2, 3]
    sparse = scan.volume.with_data(scan.volume.data[..., four])
    check = check_flips(sparse, scan.gradients.select(four), mask=scan.mask)
    assert (check.status, check.message) == ("untestable", UNTESTABLE)


@pytest.mark.parametrize(
    ("scan", "fa_error", "v1_error"),
    [("siemens_prisma_supine", 0.025, 4.0), ("toshiba_oblique", 0.010, 1.2)],
    indirect=["scan"],
    ids=["thick slices", "oblique"],
)
def test_tensors_fitted_at_2_mm_and_brought_back_agree_with_the_native_fit(scan, fa_error, v1_error):
    grid = working_grid(scan.volume.space)
    mask = grid.forward_mask(scan.mask)
    working = fitted(grid.forward(scan.volume), grid.forward_gradients(scan.gradients), mask)
    back = grid.inverse_tensor(Volume(working, grid.working), mask, within=scan.mask).data
    native = torch.from_numpy(fitted(scan.volume, scan.gradients, scan.mask)[scan.mask])
    returned = torch.from_numpy(back[scan.mask])
    reference = fractional_anisotropy(native)
    angles = angle_degrees(principal_direction(native), principal_direction(returned))[reference > 0.25]
    errors = (fractional_anisotropy(returned) - reference).abs()
    print(f"FA {errors.median():.4f} (mean {errors.mean():.4f}), v1 {angles.median():.2f}° (mean {angles.mean():.2f}°)")
    assert errors.median() < fa_error
    assert angles.median() < v1_error


@pytest.mark.parametrize("scan", ["philips_nottingham"], indirect=True)
def test_a_scan_at_2_mm_is_not_interpolated(scan):
    grid = working_grid(scan.volume.space)
    assert len(grid.steps) == 1
    moved = grid.forward(scan.volume)
    assert np.sort(moved.data, axis=None)[::997].tolist() == np.sort(scan.volume.data, axis=None)[::997].tolist()
    back = grid.inverse(moved, np.ones(grid.working.shape, bool))
    np.testing.assert_array_equal(back.data, scan.volume.data)
