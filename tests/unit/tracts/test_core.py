import numpy as np
import pytest

from tensorldm.tracts.core import FEWEST_STREAMLINES, core_distance, find_core, symmetric_core_distance
from tensorldm.tracts.streamlines import Streamlines


def apart(a, b):
    return max(core_distance(a, b), core_distance(b, a))


def dense(curve):
    return Streamlines.of([curve]).resampled(2000)[0]


@pytest.mark.parametrize("shape", ["line", "arc"])
def test_the_core_of_a_bundle_is_the_curve_it_surrounds(shape, bundle_around, request):
    curve = request.getfixturevalue(shape)
    core = find_core(bundle_around(curve))
    assert core.shape == (100, 3)
    assert apart(dense(curve), core) < 0.35  # a cubic is no circle: 0.2 mm on a radius of 40


def test_points_of_the_core_are_evenly_spaced(bundle_around, arc):
    steps = np.linalg.norm(np.diff(find_core(bundle_around(arc)), axis=0), axis=1)
    assert steps.max() / steps.min() < 1.01


@pytest.mark.parametrize("shift", [0.0, 0.4, 3.0, 12.5])
def test_a_bundle_shifted_across_its_course_is_as_far_as_the_shift(shift, bundle_around, line):
    across = np.cross([80, 0, 20.0], [0, 1, 0])
    across = shift * across / np.linalg.norm(across)
    bundle = bundle_around(line)
    moved = bundle.moved((bundle.points + across).astype(np.float32))
    one, other = find_core(bundle), find_core(moved)
    assert core_distance(one, other) == pytest.approx(shift, abs=1e-3)
    assert symmetric_core_distance(one, other) == pytest.approx(shift, abs=1e-3)
    assert core_distance(one, other, negligible_mm=1.0) == pytest.approx(shift if shift > 1 else 0, abs=1e-3)


def test_a_bundle_is_no_distance_from_itself(bundle_around, arc):
    core = find_core(bundle_around(arc))
    assert core_distance(core, core) == 0


def test_which_way_round_streamlines_run_changes_nothing(bundle_around, arc):
    bundle = bundle_around(arc)
    core = find_core(bundle)
    lines = [line[::-1] if index % 3 else line for index, line in enumerate(bundle)]
    assert apart(core, find_core(Streamlines.of(lines))) < 1e-4
    assert apart(core, find_core(bundle.reversed())) < 1e-4


def test_the_order_of_streamlines_changes_nothing(bundle_around, arc):
    bundle = bundle_around(arc)
    shuffled = Streamlines.of([list(bundle)[index] for index in np.random.default_rng(1).permutation(len(bundle))])
    assert apart(find_core(bundle), find_core(shuffled)) < 1e-4


def test_how_finely_a_streamline_is_sampled_changes_nothing(bundle_around, arc):
    bundle = bundle_around(arc)
    thinned = Streamlines.of([line[[*range(0, 79, 2), 79]] if index % 2 else line for index, line in enumerate(bundle)])
    assert apart(find_core(bundle), find_core(thinned)) < 0.05


def test_crossing_bundles_have_cores_of_their_own(bundle_around):
    one = find_core(bundle_around(np.linspace([-40.0, 0, 0], [40, 0, 0], 50)))
    other = find_core(bundle_around(np.linspace([0.0, -40, 0], [0, 40, 0], 50)))
    # Points at u on one are |u| from the other: on average 20 mm, and the cores meet in the middle.
    assert core_distance(one, other) == pytest.approx(20, abs=0.5)
    assert np.linalg.norm(one[:, None] - other[None], axis=2).min() < 1


def test_half_a_bundle_is_near_but_not_both_ways(bundle_around, line):
    whole, half = find_core(bundle_around(line)), find_core(bundle_around(line[:30]))
    assert core_distance(whole, half) < 0.5
    assert symmetric_core_distance(whole, half) > 4


def test_too_few_streamlines_have_no_core(bundle_around, line):
    few = bundle_around(line, count=FEWEST_STREAMLINES + 2)
    keep = np.arange(len(few)) < FEWEST_STREAMLINES - 1
    assert find_core(few.chosen(keep)) is None
    assert find_core(Streamlines.of([])) is None
    assert find_core(few) is not None
