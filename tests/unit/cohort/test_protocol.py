"""Gradient tables that spread, turn and tilt as they are told to."""

import math

import numpy as np
import pytest
import torch

from tensorldm.cohort.directions import axis_triad, spread_directions
from tensorldm.cohort.draws import any_rotation
from tensorldm.cohort.protocol import draw_protocol, hcp_style, shell, sparse_volumes
from tensorldm.cohort.schemes.make import table
from tensorldm.cohort.settings import ProtocolSettings
from tensorldm.data.selection import select_axes
from tensorldm.dti.maps import angle_degrees
from tensorldm.errors import DataError
from tensorldm.imaging.gradients import GradientTable


def smallest_angle(directions):
    cosines = (directions @ directions.T).abs()
    return math.degrees(math.acos(float(cosines.fill_diagonal_(0).max())))


def test_six_directions_find_the_icosahedron():
    assert smallest_angle(spread_directions(6, seed=3)) == pytest.approx(math.degrees(math.atan(2)), abs=0.1)


@pytest.mark.parametrize(("count", "at_least_degrees"), [(12, 36), (30, 24), (90, 13.5)])
def test_directions_are_spread_and_of_length_one(count, at_least_degrees):
    directions = spread_directions(count)
    assert smallest_angle(directions) > at_least_degrees
    assert torch.allclose(directions.norm(dim=1), torch.ones(count, dtype=torch.float64))


def test_the_beginning_of_a_scheme_is_well_spread_too():
    assert smallest_angle(spread_directions(90)[:12]) > 28


def test_spreading_turns_no_direction_favoured():
    second_moment = spread_directions(90).T @ spread_directions(90) / 90
    assert torch.allclose(second_moment, torch.eye(3, dtype=torch.float64) / 3, atol=0.01)


def test_the_shipped_scheme_is_what_the_generator_makes():
    bvals, directions = hcp_style()
    made = np.loadtxt(table().splitlines())
    assert (int((bvals == 0).sum()), int((bvals == 1000).sum())) == (18, 90)
    assert np.allclose(made[:, 3], bvals.numpy())
    weighted = bvals > 0
    assert angle_degrees(directions[weighted], torch.from_numpy(made[weighted.numpy(), :3])).max() < 0.5


def test_b0_volumes_come_first_and_are_spread_over_the_scan():
    bvals, _ = hcp_style()
    places = torch.nonzero(bvals == 0).flatten()
    assert places[0] == 0
    assert set(torch.diff(places).tolist()) == {6}


@pytest.mark.parametrize("tilt", [0.0, 7.0, 25.0, 40.0])
def test_a_triad_is_tilted_by_the_angle_asked_for(tilt, generator):
    triad = axis_triad(tilt, azimuths=6 * torch.rand(3, generator=generator, dtype=torch.float64))
    angles = angle_degrees(triad, torch.eye(3, dtype=torch.float64))
    assert torch.allclose(angles, torch.full((3,), tilt, dtype=torch.float64), atol=1e-6)


@pytest.mark.parametrize("count", [3, 6, 16, 90])
def test_the_sparse_volumes_are_those_that_preparing_a_scan_would_choose(count, generator):
    for _ in range(20):
        spread = spread_directions(max(count, 6))[:count] @ any_rotation(generator).T
        bvals, directions = shell(spread, b0s=2, bval=1000.0)
        chosen = select_axes(GradientTable(bvals.numpy(), directions.numpy())).volumes
        assert sparse_volumes(bvals, directions) == chosen


def test_a_drawn_protocol_keeps_to_its_ranges(generator):
    settings = ProtocolSettings(b0s=(1, 4), directions=(12, 20), bval=(700.0, 1600.0), snr=(13.0, 60.0))
    for _ in range(20):
        protocol = draw_protocol(settings, generator)
        b0s = int((protocol.bvals == 0).sum())
        assert 1 <= b0s <= 4
        assert 12 <= len(protocol.bvals) - b0s <= 20
        assert 700 <= protocol.bvals.max() <= 1600
        assert 13 <= protocol.snr <= 60


def test_a_tilted_protocol_gives_its_triad_as_the_sparse_input(generator):
    protocol = draw_protocol(ProtocolSettings(b0s=(2, 2), directions=(30, 30), tilt_degrees=(20.0, 20.0)), generator)
    b0, *axes = protocol.sparse
    assert protocol.bvals[b0] == 0
    angles = angle_degrees(protocol.directions[axes], torch.eye(3, dtype=torch.float64))
    assert torch.allclose(angles, torch.full((3,), 20.0, dtype=torch.float64), atol=1e-6)
    assert len(protocol.bvals) == 32


def test_a_protocol_without_b0_is_refused():
    with pytest.raises(DataError, match="0 b=0"):
        sparse_volumes(torch.full((6,), 1000.0), spread_directions(6).float())


@pytest.mark.parametrize("wrong", [{"snr": (30.0, 20.0)}, {"directions": (3, 5)}, {"tilt_degrees": (0.0, 60.0)}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ProtocolSettings(**wrong)
