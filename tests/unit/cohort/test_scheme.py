"""Inputs as scanners of every kind give them: the right mixture of directions, all of them part of the reference."""

import math

import pytest
import torch

from tensorldm.cohort.clinical import SchemeSettings
from tensorldm.cohort.config import read_cohort
from tensorldm.cohort.directions import tilted_triad
from tensorldm.cohort.protocol import draw_protocol
from tensorldm.cohort.scheme import complete, draw_count, draw_input, log_even, well_conditioned_triad
from tensorldm.cohort.settings import ProtocolSettings
from tensorldm.cohort.virtual import draw_subject_protocol
from tensorldm.dti.axes import nearest_to_axes
from tensorldm.dti.maps import angle_degrees
from tensorldm.rng import generator as named

CLINICAL = read_cohort("clinical").settings
AXES = torch.eye(3, dtype=torch.float64)


def smallest_angle(directions):
    cosines = (directions @ directions.T).abs().fill_diagonal_(0)
    return math.degrees(math.acos(float(cosines.max())))


@pytest.fixture(scope="module")
def protocols():
    return [draw_subject_protocol(CLINICAL, seed=0, position=48 * group) for group in range(300)]


def inputs(protocol):
    return protocol.directions[list(protocol.sparse[1:])]


def test_each_direction_of_a_triad_has_its_own_tilt(generator):
    tilts = torch.tensor([0.0, 10.0, 24.0], dtype=torch.float64)
    triad = tilted_triad(tilts, azimuths=6 * torch.rand(3, generator=generator, dtype=torch.float64))
    assert torch.allclose(angle_degrees(triad, AXES), tilts, atol=1e-6)


def test_the_kinds_of_input_come_in_the_shares_asked_for(protocols):
    more = [protocol for protocol in protocols if len(protocol.sparse) > 4]
    triads = [inputs(protocol) for protocol in protocols if len(protocol.sparse) == 4]
    largest = [max(nearest_to_axes(triad).angles_degrees) for triad in triads]
    in_order = [float(angle_degrees(triad, AXES).max()) for triad in triads]
    near = sum(angle <= 25.001 for angle in in_order)
    assert len(more) / len(protocols) == pytest.approx(0.25, abs=0.07)
    assert near / len(protocols) == pytest.approx(0.6, abs=0.08)
    assert max(largest) > 30, "some triads are far from the axes"
    assert {len(protocol.sparse) - 1 for protocol in more} == set(range(4, 13))


def test_small_tilts_are_the_usual_ones(generator):
    triads = torch.stack([draw_input(SchemeSettings(any_triad=0.0), 3, generator=generator) for _ in range(300)])
    tilts = angle_degrees(triads, AXES.expand(300, 3, 3))
    assert tilts.max() <= 25.001
    assert tilts.max() > 23
    assert 7 < tilts.median() < 10.5


def test_any_triad_is_well_conditioned(generator):
    conditions = [float(torch.linalg.cond(well_conditioned_triad(2.0, generator))) for _ in range(50)]
    assert max(conditions) <= 2.0
    assert max(conditions) > 1.5
    assert float(torch.linalg.cond(well_conditioned_triad(1.0, generator))) == pytest.approx(1)


def test_the_reference_holds_the_inputs_and_is_spread_over_the_sphere(protocols):
    for protocol in protocols[:60]:
        weighted = protocol.directions[protocol.bvals > 0]
        assert protocol.bvals[protocol.sparse[0]] == 0
        assert len(set(protocol.sparse)) == len(protocol.sparse)
        assert 12 <= len(weighted) <= 64
        assert 1 <= int((protocol.bvals == 0).sum()) <= 8
        second_moment = weighted.T @ weighted / len(weighted)
        assert torch.linalg.cond(second_moment) < 3.5, "no direction is left out"


def test_given_directions_take_the_place_of_their_neighbours(generator):
    given = draw_input(SchemeSettings(), 12, generator=generator)
    whole = complete(given, 30, generator=generator)
    assert torch.equal(whole[:12], given)
    assert len(whole) == 30
    added = (whole[12:] @ given.T).abs().max(dim=1).values
    assert math.degrees(math.acos(float(added.median()))) > 12
    assert torch.equal(complete(given, 8, generator=generator), given), "never fewer than the input"
    assert smallest_angle(given) > 30


def test_b_values_and_noise_are_spread_as_asked(protocols):
    bvals = torch.tensor([float(protocol.bvals.max()) for protocol in protocols])
    snr = torch.tensor([protocol.snr for protocol in protocols])
    assert bvals.min() < 740
    assert bvals.max() > 1560
    usual = ((bvals >= 900) & (bvals <= 1100)).float().mean()
    assert float(usual) == pytest.approx(0.5 + 0.5 * 200 / 900, abs=0.07)
    assert float(snr.log().mean()) == pytest.approx((math.log(13) + math.log(60)) / 2, abs=0.06)
    assert {protocol.coils for protocol in protocols} == {1, 4}
    means = sum(protocol.mean_b0 for protocol in protocols) / len(protocols)
    assert means == pytest.approx(0.5, abs=0.08)


def test_a_group_shares_its_number_of_volumes_and_nothing_else():
    for group in range(6):
        drawn = [draw_subject_protocol(CLINICAL, seed=3, position=48 * group + offset) for offset in (0, 1, 20, 47)]
        assert len({len(protocol.sparse) for protocol in drawn}) == 1
        assert len({protocol.snr for protocol in drawn}) == 4
    counts = [draw_count(SchemeSettings(), named(3, "input", group)) for group in range(6)]
    assert len(set(counts)) > 1


def test_a_protocol_without_a_scheme_is_what_it_was_before_there_were_any():
    """The numbers of a protocol drawn with these settings and this seed by the first release."""
    protocol = draw_protocol(ProtocolSettings(snr=(20.0, 35.0)), named(11, "protocol", 0))
    assert protocol.snr == pytest.approx(24.32171860)
    assert protocol.directions[1].tolist() == pytest.approx([-0.47093654, 0.41816663, 0.77675958])
    assert protocol.sparse == (0, 19, 93, 79)
    assert protocol.keeps_the_grid


def test_logarithms_are_drawn_evenly(generator):
    drawn = torch.tensor([log_even(generator, (1.0, 100.0)) for _ in range(500)])
    assert float((drawn < 10).float().mean()) == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize(
    "wrong", [{"near_axes": 0.7, "any_triad": 0.4}, {"tilt_degrees": 60.0}, {"directions": (2, 5)}, {"usual": 1.5}]
)
def test_schemes_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SchemeSettings(**wrong)
