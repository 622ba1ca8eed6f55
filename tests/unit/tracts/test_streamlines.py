import numpy as np
import pytest

from tensorldm.tracts.streamlines import Streamlines


@pytest.fixture
def three():
    """3-4-5 steps, one of a single point, and an uneven line."""
    return Streamlines.of([
        np.array([[0.0, 0, 0], [3, 4, 0], [3, 4, 12]]),
        np.array([[7.0, 7, 7]]),
        np.array([[0.0, 0, 0], [1, 0, 0], [10, 0, 0]]),
    ])  # fmt: skip


def test_lengths_are_along_the_course_and_do_not_run_from_one_to_the_next(three):
    assert np.allclose(three.lengths_mm, [17, 0, 10])


def test_choosing_keeps_order_and_points(three):
    kept = three.chosen(np.array([True, False, True]))
    assert [len(line) for line in kept] == [3, 3]
    assert np.array_equal(list(kept)[1], list(three)[2])


def test_resampling_gives_even_steps_and_keeps_both_ends(three):
    lines = three.chosen(three.counts > 1).resampled(11)
    assert np.allclose(lines[1], np.stack([np.linspace(0, 10, 11), np.zeros(11), np.zeros(11)], axis=1))
    assert np.allclose(lines[0][[0, -1]], [[0, 0, 0], [3, 4, 12]])
    # Steps are even along the course; only the one around the corner is shorter as the crow flies.
    assert np.sum(~np.isclose(np.linalg.norm(np.diff(lines[0], axis=0), axis=1), 1.7)) == 1


def test_a_standing_point_within_a_line_does_no_harm():
    line = Streamlines.of([np.array([[0.0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 0, 0]])])
    assert np.allclose(line.resampled(5)[0, :, 0], [0, 0.5, 1, 1.5, 2])


def test_reversing_turns_every_line_and_twice_is_nothing(three):
    assert np.array_equal(next(iter(three.reversed())), next(iter(three))[::-1])
    assert np.array_equal(three.reversed().reversed().points, three.points)


def test_a_single_point_has_no_course(three):
    with pytest.raises(ValueError, match="two points"):
        three.resampled(5)


def test_none_are_none():
    empty = Streamlines.of([])
    assert len(empty) == 0
    assert len(empty.lengths_mm) == 0
    assert empty.resampled(5).shape == (0, 5, 3)
    assert len(empty.reversed()) == 0


def test_offsets_that_do_not_fit_are_our_own_mistake():
    with pytest.raises(ValueError, match="offsets"):
        Streamlines(np.zeros((3, 3)), np.array([0, 2]))
