import numpy as np
import pytest

from tensorldm.errors import ConfigError
from tensorldm.imaging.volume import Space
from tensorldm.tracts.bundle_masks import BundleMask
from tensorldm.tracts.regions import Region, grow
from tensorldm.tracts.selecting import SelectionRule, find_endings, select
from tensorldm.tracts.streamlines import Streamlines

STRICT = SelectionRule(margin_mm=0.0, least_inside=0.8, ending_share=0.3)


def box(low, high, shape=(60, 20, 20)):
    """Voxels of 2 mm; a box in voxel indices."""
    mask = np.zeros(shape, dtype=bool)
    mask[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = True
    return Region(mask, Space(shape, np.diag([2.0, 2, 2, 1])))


@pytest.fixture
def tube():
    """100 mm along x, 10 mm thick, about y = z = 18 mm."""
    return BundleMask("tube", box((5, 7, 7), (55, 12, 12)))


def straight(start, stop, *, y=18.0, z=18.0):
    x = np.arange(start, stop + 0.5)
    return np.stack([x, np.full_like(x, y), np.full_like(x, z)], axis=1)


def kept(lines, bundle, rule=STRICT):
    found = [tuple(line[0]) for line in select(Streamlines.of(lines), bundle, rule)]
    return [tuple(line[0].astype(np.float32)) in found for line in lines]


def test_only_streamlines_that_stay_inside_are_kept(tube):
    inside, beside = straight(12, 105), straight(12, 105, y=30)
    mostly, barely = np.concatenate([straight(12, 90), straight(90, 105, y=30)]), straight(11, 150)
    assert kept([inside, beside, mostly, barely], tube) == [True, False, True, False]


def test_a_streamline_runs_from_one_end_to_the_other(tube):
    assert kept([straight(12, 105), straight(20, 60), straight(60, 100), straight(30, 90)], tube) == [
        True, False, False, True,
    ]  # fmt: skip


def test_given_endings_count_more_than_those_of_the_mask(tube):
    endings = (box((5, 7, 7), (8, 12, 12)), box((52, 7, 7), (55, 12, 12)))
    bundle = BundleMask("tube", tube.inside, endings=endings)
    assert kept([straight(12, 108), straight(30, 90)], bundle) == [True, False]


def test_the_two_endings_are_at_the_two_ends_also_of_a_horseshoe():
    one, other, bend = box((5, 4, 8), (40, 8, 12)), box((5, 12, 8), (40, 16, 12)), box((40, 4, 8), (44, 16, 12))
    shoe = Region(one.mask | other.mask | bend.mask, one.space)
    first, last = find_endings(shoe, 0.3)
    assert not (first.mask & last.mask).any()
    tips = [
        bool((ending.mask & leg.mask)[:8].all(where=leg.mask[:8])) for ending in (first, last) for leg in (one, other)
    ]
    assert sorted(tips) == [False, False, True, True]
    assert not (first.mask | last.mask)[40:].any()


def test_a_streamline_that_enters_the_exclusion_is_dropped(tube):
    bundle = BundleMask("tube", tube.inside, exclusion=box((30, 7, 7), (31, 9, 12)))
    assert kept([straight(12, 105), straight(12, 104, y=15)], bundle) == [True, False]


def test_lengths_are_limited(tube):
    rule = SelectionRule(0.0, 0.8, 0.5, min_length_mm=50.0, max_length_mm=90.0)
    assert kept([straight(12, 105), straight(30, 100), straight(50, 90)], tube, rule) == [False, True, False]


def test_the_margin_lets_streamlines_waver(tube):
    beside = straight(12, 105, y=24.5)
    assert kept([beside], tube) == [False]
    assert kept([beside], tube, SelectionRule()) == [True]


def test_growing_reaches_as_far_as_the_margin_in_every_direction():
    grown = grow(box((30, 10, 10), (31, 11, 11)), 4.0)
    away = np.linalg.norm((np.argwhere(grown.mask) - [30, 10, 10]) * 2, axis=1)
    assert away.max() == 4
    assert grown.mask.sum() == 33


def test_the_direction_of_streamlines_and_an_empty_tractogram_do_not_matter(tube):
    lines = Streamlines.of([straight(12, 105), straight(20, 60)])
    assert len(select(lines.reversed(), tube, STRICT)) == 1
    assert len(select(Streamlines.of([]), tube, STRICT)) == 0


def test_a_rule_that_nothing_fulfils_is_refused():
    with pytest.raises(ConfigError):
        SelectionRule(least_inside=1.5)
