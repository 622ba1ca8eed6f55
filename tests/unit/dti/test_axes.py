"""The choice of the three directions nearest to the axes."""

from itertools import permutations

import pytest
import torch

from tensorldm.dti.axes import nearest_that_span, nearest_to_axes


def _unit(rows: list[list[float]]) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.tensor(rows, dtype=torch.float64), dim=1)


def test_each_axis_gets_a_direction_of_its_own():
    # The first direction is nearest to both x and y; giving it to x leaves y with the far better partner.
    assert nearest_to_axes(_unit([[0.8, 0.6, 0.0], [0.6, 0.75, 0.28], [0.0, 0.1, 0.995]])).indices == (0, 1, 2)


def test_the_sum_of_angles_is_the_smallest_of_all_choices(generator):
    for _ in range(20):
        directions = torch.nn.functional.normalize(torch.randn(7, 3, generator=generator, dtype=torch.float64), dim=1)
        angles = torch.rad2deg(torch.acos(directions.abs()))
        best = min(sum(float(angles[i, a]) for a, i in enumerate(chosen)) for chosen in permutations(range(7), 3))
        assert sum(nearest_to_axes(directions).angles_degrees) == pytest.approx(best, abs=0.01)


def test_the_sign_of_a_direction_matters_only_when_asked_for(generator):
    directions = torch.nn.functional.normalize(torch.randn(20, 3, generator=generator, dtype=torch.float64), dim=1)
    signs = torch.where(torch.rand(20, 1, generator=generator) < 0.5, -1.0, 1.0)
    assert nearest_to_axes(directions) == nearest_to_axes(signs * directions)
    both = torch.cat([-torch.eye(3, dtype=torch.float64), _unit([[1, 0.2, 0], [0, 1, 0.2], [0.2, 0, 1]])])
    assert nearest_to_axes(both).indices == (0, 1, 2)
    assert nearest_to_axes(both, antipodal=False).indices == (3, 4, 5)


def test_of_repeated_directions_the_earliest_is_taken():
    axes = torch.eye(3, dtype=torch.float64)
    assert nearest_to_axes(torch.cat([axes[[2]], axes, axes])).indices == (1, 2, 0)


EDGES = _unit([[1, 0, 1], [-1, 0, 1], [0, 1, 1], [0, 1, -1], [1, 1, 0], [-1, 1, 0]])


def test_a_choice_that_spans_space_is_found_among_coplanar_ones_of_the_same_angles():
    spanning = 0
    for order in permutations(range(6)):
        directions = EDGES[list(order)]
        choice = nearest_that_span(directions, least_volume=0.1)
        assert choice is not None
        assert choice.angles_degrees == pytest.approx((45, 45, 45))
        assert abs(torch.linalg.det(directions[list(choice.indices)])) > 0.3
        spanning += bool(abs(torch.linalg.det(directions[list(nearest_to_axes(directions).indices)])) > 0.1)
    assert spanning < 720, "here the nearest alone would do, and nothing is tested"


def test_a_spanning_choice_is_the_nearest_of_all_that_span(generator):
    for _ in range(20):
        directions = torch.nn.functional.normalize(torch.randn(6, 3, generator=generator, dtype=torch.float64), dim=1)
        angles = torch.rad2deg(torch.acos(directions.abs()))
        sums = [
            sum(float(angles[i, a]) for a, i in enumerate(chosen))
            for chosen in permutations(range(6), 3)
            if abs(torch.linalg.det(directions[list(chosen)])) >= 0.5
            and max(float(angles[i, a]) for a, i in enumerate(chosen)) <= 55
        ]
        found = nearest_that_span(directions, least_volume=0.5)
        assert (found is None) == (not sums)
        assert found is None or sum(found.angles_degrees) == pytest.approx(min(sums), abs=0.01)


def test_a_spanning_choice_is_found_among_any_number_of_repeats():
    diagonal = _unit([[1, 1, -0.5], [1, -0.5, 1], [-0.5, 1, 1]])
    choice = nearest_that_span(diagonal.repeat_interleave(40, dim=0), least_volume=0.1)
    assert choice is not None
    assert sorted(choice.indices) == [0, 40, 80]


def test_directions_in_a_plane_span_nothing():
    assert nearest_that_span(_unit([[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, -1, 0]]), least_volume=0.1) is None
    nearly = _unit([[1, 0, 0.1], [0, 1, -0.1], [1, 1, 0.2], [1, -1, -0.1]])
    assert nearest_that_span(nearly, least_volume=0.1) is None, "nothing here stands for z"
