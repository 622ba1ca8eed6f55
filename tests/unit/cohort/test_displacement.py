"""Motion, eddy currents and distortion against shifts that are known in closed form."""

import math

import pytest
import torch

from tensorldm.cohort.deformation import coordinates
from tensorldm.cohort.displacement import Poses, Shifts, displaced, draw_poses, draw_shifts
from tensorldm.cohort.protocol import Distortion, Protocol

SHAPE, SIZE = (24, 26, 22), (2.0, 2.0, 2.0)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def box():
    """Two volumes that rise along the axes, known at any place, in a box away from the grid's edge."""
    positions = coordinates(SHAPE, SIZE, device=CPU)
    volumes = torch.stack([100 + positions[0] + 2 * positions[1] - positions[2], 100 - 3 * positions[1]])
    mask = (positions.abs() < torch.tensor([18.0, 20.0, 16.0])[:, None, None, None]).all(dim=0)
    return volumes * mask, mask


def still(count=2):
    return Poses(torch.eye(3, dtype=torch.float64).expand(count, 3, 3), torch.zeros(count, 3, dtype=torch.float64))


def no_shift(count=2, shared=0.0, axis=1):
    return Shifts(axis, torch.zeros(count).double(), torch.zeros(count, 3).double(), torch.full(SHAPE, shared))


def inner(mask, layers=2):
    outside = (~mask).float()[None, None]
    return torch.nn.functional.max_pool3d(outside, 2 * layers + 1, stride=1, padding=layers)[0, 0] == 0


def test_a_still_head_in_an_even_field_is_shown_as_it_is(box):
    volumes, mask = box
    for shifts in (None, no_shift()):
        signal, seen = displaced(volumes, mask, poses=still(), shifts=shifts, voxel_size=SIZE)
        assert torch.equal(seen, mask)
        assert torch.allclose(signal.T, volumes[:, mask], atol=1e-3)


def test_each_volume_moves_by_its_own_translation(box):
    volumes, mask = box
    poses = Poses(still().rotations, torch.tensor([[0.0, 0.0, 0.0], [0.5, -0.7, 0.3]], dtype=torch.float64))
    signal, seen = displaced(volumes, mask, poses=poses, voxel_size=SIZE)
    deep = inner(mask)[seen]
    # The head moved to -y by 0.7: a voxel shows what lay at y + 0.7, where the volume is 2.1 darker.
    assert torch.allclose(signal[deep, 0], volumes[0][inner(mask)], atol=1e-3)
    assert torch.allclose(signal[deep, 1], volumes[1][inner(mask)] - 3 * 0.7, atol=1e-3)


def test_no_voxel_darkens_where_the_head_moves_away_from_the_masks_edge(box):
    volumes, mask = box
    even = torch.full_like(volumes, 50.0) * mask
    poses = Poses(still().rotations, torch.tensor([[0.0, 0.0, 0.0], [3.5, 1.1, -0.4]], dtype=torch.float64))
    signal, _ = displaced(even, mask, poses=poses, voxel_size=SIZE)
    assert torch.allclose(signal, torch.full_like(signal, 50.0), atol=1e-3)


def test_eddy_currents_shear_and_stretch_along_the_phase_axis_and_brighten_what_they_squeeze(box):
    volumes, mask = box
    slopes = torch.tensor([[0.0, 0.0, 0.0], [0.02, 0.01, -0.03]], dtype=torch.float64)
    shifts = Shifts(1, torch.tensor([0.0, 0.4], dtype=torch.float64), slopes, torch.zeros(SHAPE))
    signal, seen = displaced(volumes, mask, poses=still(), shifts=shifts, voxel_size=SIZE)
    positions = coordinates(SHAPE, SIZE, device=CPU)[:, inner(mask)]
    moved = positions[1] + 0.4 + slopes[1].float() @ positions
    assert torch.allclose(signal[inner(mask)[seen], 1], (100 - 3 * moved) * 1.01, atol=2e-3)


def test_the_shared_distortion_moves_the_brain_and_keeps_its_signal(box):
    volumes, mask = box
    even = torch.ones_like(volumes) * mask
    positions = coordinates(SHAPE, SIZE, device=CPU)
    # y looks at 1.2 y: the brain shrinks by 1.2 and brightens by as much.
    shifts = Shifts(1, torch.zeros(2).double(), torch.zeros(2, 3).double(), 0.2 * positions[1])
    signal, seen = displaced(even, mask, poses=still(), shifts=shifts, voxel_size=SIZE)
    assert int(seen.sum()) == pytest.approx(int(mask.sum()) / 1.2, rel=0.06)
    assert torch.allclose(signal, torch.full_like(signal, 1.2), atol=1e-3)
    assert float(signal.sum()) == pytest.approx(float(even.sum()), rel=0.06)


def test_only_weighted_volumes_have_eddy_currents_and_their_size_is_the_one_asked_for(generator):
    bvals = torch.tensor([0.0] + 999 * [1000.0], dtype=torch.float64)
    distortion = Distortion(eddy_mm=0.8, shared_mm=3.0, axis=0)
    shifts = draw_shifts(distortion, bvals, shape=SHAPE, voxel_size=SIZE, generator=generator, device=CPU)
    assert shifts.offsets[0] == 0
    assert shifts.slopes[0].abs().max() == 0
    assert float(80 * shifts.slopes[1:].std()) == pytest.approx(0.8, rel=0.05)
    assert shifts.axis == 0


def test_smooth_distortion_has_the_size_asked_for(generator):
    shape, spread = (60, 60, 60), []
    for _ in range(12):
        drawn = draw_shifts(
            Distortion(shared_mm=3.0, spacing_mm=40.0),
            torch.zeros(1).double(),
            shape=shape,
            voxel_size=SIZE,
            generator=generator,
            device=CPU,
        )
        spread.append(drawn.shared.square().mean())
    assert float(torch.stack(spread).mean().sqrt()) == pytest.approx(3.0, rel=0.25)


def test_all_volumes_share_the_offset_and_differ_by_the_motion(generator):
    protocol = Protocol(
        bvals=torch.zeros(400).double(),
        directions=torch.zeros(400, 3).double(),
        sparse=(0, 1, 2, 3),
        motion_mm=0.3,
        motion_degrees=0.2,
        offset_mm=1.0,
    )
    poses = draw_poses(protocol, generator)
    first = poses.translations[0]
    assert 0 < first.abs().max() <= 1
    apart = poses.translations[1:] - first
    assert float(apart.std()) == pytest.approx(0.3, rel=0.1)
    turned = torch.acos(((poses.rotations.diagonal(dim1=1, dim2=2).sum(dim=1) - 1) / 2).clamp(-1, 1))
    assert float(turned[1:].square().mean().sqrt()) == pytest.approx(math.radians(0.2) * math.sqrt(3), rel=0.1)
