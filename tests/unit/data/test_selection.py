"""Selection: the paper's four volumes, found jointly; and the few directions that determine a tensor best."""

import itertools

import numpy as np
import pytest

from tensorldm.data.selection import select_axes, select_well_conditioned
from tensorldm.errors import DataError
from tensorldm.imaging.gradients import GradientTable


def table(directions, bvals=None, b0s=1):
    vectors = np.asarray(directions, dtype=float)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    bvals = np.full(len(vectors), 1000.0) if bvals is None else np.asarray(bvals, dtype=float)
    return GradientTable(np.r_[np.zeros(b0s), bvals], np.r_[np.zeros((b0s, 3)), vectors])


def spread(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3))


def test_the_axes_themselves_are_found_in_any_order_and_sign():
    selection = select_axes(table([[0, 0, -1], [1, 1, 1], [0, 1, 0], [-1, 0, 0]], b0s=2))
    assert selection.volumes == (0, 5, 4, 2)
    assert selection.b0 == (0, 1)
    assert selection.angles_degrees == pytest.approx((0, 0, 0), abs=1e-6)


def test_each_direction_serves_one_axis_and_the_sum_of_angles_is_the_least_possible():
    for seed in range(30):
        gradients = table(spread(12, seed))
        selection = select_axes(gradients)
        angles = np.degrees(np.arccos(np.abs(gradients.directions[1:])))
        best = min(angles[i, 0] + angles[j, 1] + angles[k, 2] for i, j, k in itertools.permutations(range(12), 3))
        assert len(set(selection.axes)) == 3
        assert sum(selection.angles_degrees) == pytest.approx(best, abs=2e-3)


def test_a_direction_nearest_to_two_axes_is_given_where_it_is_needed():
    # Volume 1 is nearest to both x and y; greedily it would serve x and leave y to a direction 80° away.
    gradients = table([[1, 0.9, 0], [1, -0.2, 0.8], [0.1, 0.1, 1], [1, 0.15, -0.9]])
    selection = select_axes(gradients)
    assert selection.axes[1] == 1
    assert selection.axes[0] in (2, 4)


def test_the_literal_reading_takes_no_opposite_direction():
    directions = [[-1, 0, 0], [0.8, 0.6, 0], [0, 1, 0.1], [0, 0, 1]]
    assert select_axes(table(directions)).axes[0] == 1
    literal = select_axes(table(directions), antipodal=False)
    assert literal.axes[0] == 2
    assert literal.angles_degrees[0] == pytest.approx(np.degrees(np.arccos(0.8)))


def test_a_repeated_direction_gives_the_earliest_volume():
    axes = np.eye(3)
    assert select_axes(table(np.r_[axes, axes, axes])).axes == (1, 2, 3)


def test_only_the_wanted_shell_is_used_and_its_true_b_value_is_told():
    gradients = table(np.r_[np.eye(3), spread(6)], bvals=[2000] * 3 + [929.75] * 6)
    selection = select_axes(gradients)
    assert selection.shell == pytest.approx(929.75)
    assert set(selection.axes) <= set(range(4, 10))
    assert select_axes(gradients, shell=2000.0).axes == (1, 2, 3)


def test_the_usual_six_directions_are_taken_in_whatever_order_a_scanner_sends_them():
    """Along the edges of a cube: all choices tie at 45°, and some of them lie in a plane."""
    edges = np.array([[1, 0, 1], [-1, 0, 1], [0, 1, 1], [0, 1, -1], [1, 1, 0], [-1, 1, 0]])
    for order in itertools.permutations(range(6)):
        gradients = table(edges[list(order)])
        selection = select_axes(gradients)
        assert selection.angles_degrees == pytest.approx((45, 45, 45))
        assert abs(np.linalg.det(gradients.directions[list(selection.axes)])) > 0.3


@pytest.mark.parametrize(
    ("gradients", "words"),
    [
        (table(np.eye(3), b0s=0), ["No b=0", "1000"]),
        (table(np.eye(3), bvals=[2000] * 3), ["No shell", "1000", "2000 (3 volumes)"]),
        (table(np.eye(3)[:2]), ["three directions", "found 2"]),
        (table([[1, 0, 0], [0, 1, 0], [1, 1, 0.05]]), ["coplanar", "1, 2, 3"]),
        (table(np.zeros((0, 3)), b0s=4), ["None of the 4", "diffusion-weighted"]),
    ],
    ids=["no b=0", "wrong shell", "two directions", "coplanar", "no weighting"],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(gradients, words):
    with pytest.raises(DataError) as error:
        select_axes(gradients)
    for word in words:
        assert word in str(error.value)


def test_six_of_few_directions_are_the_best_of_all_subsets():
    gradients = table(spread(9))
    subset = select_well_conditioned(gradients, 6)
    g = gradients.directions[1:]
    forms = np.stack(
        [g[:, 0] ** 2, g[:, 1] ** 2, g[:, 2] ** 2, 2 * g[:, 0] * g[:, 1], 2 * g[:, 0] * g[:, 2], 2 * g[:, 1] * g[:, 2]],
        axis=1,
    )
    best = min(np.linalg.cond(forms[list(s)]) for s in itertools.combinations(range(9), 6))
    assert subset.condition_number == pytest.approx(best)
    assert subset.volumes[0] == 0
    assert subset.directions == tuple(sorted(set(subset.directions)))


def test_of_many_directions_the_subset_is_near_the_known_optimum_of_six():
    # The icosahedron's six axes have the lowest condition number of any six directions, sqrt(5/2) in
    # this weighting of off-diagonals (Skare et al., Journal of Magnetic Resonance 147, 2000).
    golden = (1 + np.sqrt(5)) / 2
    icosahedron = [[0, 1, golden], [0, 1, -golden], [1, golden, 0], [1, -golden, 0], [golden, 0, 1], [golden, 0, -1]]
    alone = select_well_conditioned(table(icosahedron), 6)
    assert alone.condition_number == pytest.approx(np.sqrt(5 / 2), rel=1e-6)
    hidden = select_well_conditioned(table(np.r_[spread(54), icosahedron]), 6)
    assert hidden.condition_number < 1.15 * alone.condition_number
    assert select_well_conditioned(table(np.r_[spread(54), icosahedron]), 6) == hidden


@pytest.mark.parametrize("count", [5, 13])
def test_too_few_or_too_many_directions_are_refused(count):
    with pytest.raises(DataError, match=f"{count} directions asked for; between 6 and the 12"):
        select_well_conditioned(table(spread(12)), count)
