"""What the guard says of real scans of four vendors: each true thing once, and nothing that cries wolf."""

import numpy as np
import pytest

from tensorldm.errors import DataError
from tensorldm.imaging.mask import find_brain, mean_b0
from tensorldm.imaging.volume import Volume
from tensorldm.reconstruct import guard
from tensorldm.reconstruct.engine import Traits
from tensorldm.reconstruct.inputs import Given, gather
from tensorldm.reconstruct.plan import Plan, make_plan
from tensorldm.reconstruct.reading import read_scan_header, read_series
from tensorldm.reconstruct.settings import Settings

pytestmark = pytest.mark.real

MODEL = Traits("tensorldm", voxelwise=False, fixed_input=False, samples=True)
SLAB, COARSE, OTHER_B, FAR = "a slab", "mm are coarse", "is not near 1000", "away from it"
SAID = {
    "philips_elition": ([], []),
    "philips_nottingham": ([SLAB], []),
    "siemens_prisma_supine": ([COARSE], [FAR]),
    "siemens_prisma_prone": ([COARSE], [FAR]),
    "uih_PA": ([COARSE, SLAB], [FAR]),
    "uih_AP": ([COARSE, SLAB], [FAR]),
    "toshiba_ortho": ([OTHER_B], []),
    "toshiba_oblique": ([OTHER_B], []),
}
"""Of all directions, and what is added when only three of them are used."""


def scan_of(real_data, name):
    (files,) = gather([real_data / "real" / name / "dwi.nii.gz"], given=Given())
    return files


def plan_of(real_data, name, **settings) -> Plan:
    header = read_scan_header(scan_of(real_data, name))
    return make_plan(header.space, header.gradients, traits=MODEL, settings=Settings(**settings))


@pytest.mark.parametrize("name", SAID)
def test_headers_and_gradients_are_told_of_as_they_are(name, real_data):
    always, of_three = SAID[name]
    for directions, expected in (("all", always), ("3", [*of_three, *always])):
        words = plan_of(real_data, name, directions=directions).warnings
        assert len(words) == len(expected), words
        assert all(any(part in word for word in words) for part in expected), words


@pytest.mark.parametrize("name", SAID)
def test_the_three_volumes_are_the_nearest_to_the_axes_of_all_triples(name, real_data):
    plan = plan_of(real_data, name, directions="3")
    turned = plan.grid.forward_gradients(plan.gradients)
    angles = np.degrees(np.arccos(np.clip(np.abs(turned.directions[~turned.is_b0]), 0, 1)))
    sums = angles[:, None, None, 0] + angles[None, :, None, 1] + angles[None, None, :, 2]
    assert sum(plan.angles_degrees) == pytest.approx(sums.min(), abs=0.01)
    assert len(set(plan.used)) == 4


def test_b_2000_is_refused_and_by_force_told_of_in_earnest(real_data):
    with pytest.raises(DataError, match="b=2000, outside 700 to 1600"):
        plan_of(real_data, "philips_vanderbilt_b2000")
    (word,) = plan_of(real_data, "philips_vanderbilt_b2000", force=True).warnings
    assert "FA is off too" in word


def test_fluid_that_has_decayed_to_zero_in_a_few_voxels_is_no_lost_signal(real_data):
    """At b=1500 a hundredth of this brain is zero in one volume or another, most of it ventricles."""
    plan = plan_of(real_data, "toshiba_ortho")
    series: Volume = read_series(scan_of(real_data, "toshiba_ortho"), plan.used)
    table = plan.gradients.select(plan.used)
    brain = find_brain(mean_b0(series, table))
    inside = series.data[brain].astype(np.float64)
    assert (inside <= 0).any(axis=1).mean() > 0.01
    assert guard.check_signal(inside, table, volumes=plan.used, force=False) == []
    assert guard.check_mask(brain, series.space, traits=MODEL) == []
