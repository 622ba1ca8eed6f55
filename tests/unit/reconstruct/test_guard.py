"""The guard: what is refused, what is warned of, and what passes without a word."""

import numpy as np
import pytest

from tensorldm.data.selection import select_axes
from tensorldm.errors import ConfigError, DataError
from tensorldm.imaging.flips import FlipCheck
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.volume import Space
from tensorldm.reconstruct import guard
from tensorldm.reconstruct.engine import Traits
from tensorldm.reconstruct.plan import make_plan
from tensorldm.reconstruct.settings import Settings

FORMULA = Traits("minimum-norm", voxelwise=True, fixed_input=False, samples=False)
DIRECTIONAL = Traits("tensorldm", voxelwise=False, fixed_input=False, samples=True)
PAPER = Traits("tensorldm", voxelwise=False, fixed_input=True, samples=True)


def space(voxel=(2.0, 2.0, 2.0), shape=(90, 110, 80)):
    return Space(shape, np.diag([*voxel, 1.0]))


def table(bvals, directions=None):
    vectors = np.eye(3) if directions is None else np.array(directions, dtype=float)
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return GradientTable(np.array([0.0, *bvals]), np.vstack([np.zeros(3), vectors]))


@pytest.mark.parametrize("bval", [900, 950, 1000, 1100])
def test_b_values_near_1000_pass_without_a_word(bval):
    for traits in (FORMULA, DIRECTIONAL, PAPER):
        assert guard.check_bvalue(float(bval), traits=traits, force=False) == []


@pytest.mark.parametrize("bval", [700, 800, 1200, 1600])
def test_other_b_values_of_the_known_range_are_warned_of(bval):
    (paper,) = guard.check_bvalue(float(bval), traits=PAPER, force=False)
    assert "kurtosis and the noise floor are not corrected" in paper
    (directional,) = guard.check_bvalue(float(bval), traits=DIRECTIONAL, force=False)
    assert "it is accounted for" in directional


@pytest.mark.parametrize("bval", [400, 690, 1650, 3000])
def test_b_values_outside_are_refused_unless_forced(bval):
    with pytest.raises(DataError, match=rf"b={bval}, outside 700 to 1600.*--force"):
        guard.check_bvalue(float(bval), traits=DIRECTIONAL, force=False)
    (word,) = guard.check_bvalue(float(bval), traits=DIRECTIONAL, force=True)
    assert f"b={bval} s/mm² is outside 700 to 1600" in word
    assert "FA is off too" in word
    forced, corrected = guard.check_bvalue(float(bval), traits=PAPER, force=True)
    assert forced == word
    assert "kurtosis and the noise floor are not corrected" in corrected


def test_up_to_50_counts_as_b0():
    gradients = GradientTable(np.array([50.0, 1000, 1000, 1000]), np.vstack([[1, 0, 0], np.eye(3)]))
    plan = make_plan(space(), gradients, traits=FORMULA, settings=Settings())
    assert plan.used == (0, 1, 2, 3)
    assert not plan.used_gradients.directions[0].any()


def test_of_many_shells_the_nearest_to_1000_with_three_directions_is_taken():
    vectors = np.vstack([np.zeros(3), np.eye(3), np.eye(3), [[1, 0, 0]]])
    gradients = GradientTable(np.array([0, 2500, 2500, 2500, 800, 800, 800, 1000.0]), vectors)
    plan = make_plan(space(), gradients, traits=FORMULA, settings=Settings())
    assert plan.used == (0, 4, 5, 6)


def test_directions_far_from_the_axes_mean_something_else_to_each_method():
    vectors = [[1, 0.9, 0], [0, 1, 0.9], [0.9, 0, 1]]
    selection = select_axes(table([1000] * 3, vectors))
    words = [guard.check_angles(selection, traits=traits) for traits in (FORMULA, DIRECTIONAL, PAPER)]
    assert all(len(word) == 1 and "42°" in word[0] for word in words)
    assert "as if it were that axis" in words[2][0]
    assert guard.check_angles(select_axes(table([1000] * 3)), traits=PAPER) == []


@pytest.mark.parametrize(
    ("voxel", "shape", "words"),
    [
        ((2, 2, 2), (90, 110, 80), []),
        ((1.72, 1.72, 5.2), (128, 128, 25), ["5.2 mm are coarse"]),
        ((3, 3, 3), (64, 64, 40), []),
        ((1, 1, 1), (200, 220, 160), ["1 × 1 × 1 mm are fine"]),
        ((2, 2, 2), (112, 112, 32), ["64 mm along an axis, a slab"]),
    ],
)
def test_odd_grids_are_told(voxel, shape, words):
    found = guard.check_grid(space(voxel, shape), traits=DIRECTIONAL)
    assert len(found) == len(words)
    for word, sentence in zip(words, found, strict=True):
        assert word in sentence


def test_a_slab_is_no_matter_for_a_formula():
    assert guard.check_grid(space((2, 2, 2), (112, 112, 32)), traits=FORMULA) == []


def test_flips_are_refused_told_or_passed():
    assert guard.check_flips_word(FlipCheck("verified", "fine"), force=False) == []
    (word,) = guard.check_flips_word(FlipCheck("untestable", "signs cannot be verified"), force=False)
    assert word.startswith("Signs cannot be verified: FA and MD do not depend on them")
    with pytest.raises(DataError, match="--force"):
        guard.check_flips_word(FlipCheck("suspect", "fibres hang together better"), force=False)
    assert "mirrored" in guard.check_flips_word(FlipCheck("suspect", "better"), force=True)[0]


def test_a_plausible_signal_passes_and_others_are_told():
    assert signal_words(brain([0.8e-3] * 3)) == []
    (word,) = signal_words(brain([3e-3] * 3))
    assert "0.003 mm²/s" in word
    with pytest.raises(DataError, match="as bright as the b=0"):
        signal_words(brain([-1e-4] * 3))
    assert "no diffusion" in signal_words(brain([-1e-4] * 3), force=True)[0]


def brain(diffusivities):
    """Signals of b=0 and of each direction at b=1000."""
    b0 = np.random.default_rng(0).uniform(80, 120, (500, 1))
    return b0 * np.exp(-np.array([0.0, *diffusivities]) * 1000)


def signal_words(signal, *, force=False):
    directions = np.eye(3)[np.arange(signal.shape[1] - 1) % 3]
    gradients = table([1000.0] * len(directions), directions)
    return guard.check_signal(signal, gradients, volumes=range(7, 7 + signal.shape[1]), force=force)


def test_one_volume_that_does_not_belong_there_is_named_however_many_are_well():
    mixed = [0.8e-3] * 11 + [-1e-4]
    with pytest.raises(DataError, match=r"volume 19 is as bright as the b=0"):
        signal_words(brain(mixed))
    with pytest.raises(DataError, match=r"volume 8 has no signal"):
        signal_words(np.concatenate([brain([0.8e-3]), np.zeros((500, 2))], axis=1)[:, [0, 2, 3, 1]])


def test_a_volume_that_lost_a_slice_is_named_and_fluid_that_decays_to_zero_is_no_loss():
    signal = brain([0.8e-3] * 12)
    signal[:20, 5] = 0
    (word,) = signal_words(signal)
    assert word.startswith("4.0% of the mask has no signal in volume 12")
    fluid = brain([0.8e-3] * 12)
    fluid[np.arange(12), 1 + np.arange(12)] = 0  # one voxel of each volume, never the same: 2.4 % of all voxels
    assert signal_words(fluid) == []


@pytest.mark.parametrize(
    ("voxels", "traits", "words"),
    [
        (180_000, DIRECTIONAL, []),  # 1.44 l, a brain
        (70_000, DIRECTIONAL, []),  # a slab
        (400_000, DIRECTIONAL, ["3.2 litres, more than any brain"]),
        (400_000, FORMULA, ["3.2 litres, more than any brain"]),
        (50, DIRECTIONAL, ["0.4 ml, a small part of a human brain"]),
        (50, FORMULA, []),
    ],
)
def test_masks_of_air_or_of_a_corner_are_told(voxels, traits, words):
    mask = (np.arange(90 * 110 * 80) < voxels).reshape(90, 110, 80)
    found = guard.check_mask(mask, space(), traits=traits)
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))


def test_angles_are_those_of_the_volumes_that_are_used():
    """Of fifteen directions a model takes twelve, and these need not be the ones on the axes."""
    spread = np.random.default_rng(3).normal(size=(12, 3))
    gradients = table([1000] * 15, np.vstack([np.eye(3), spread]))
    three = make_plan(space(), gradients, traits=DIRECTIONAL, settings=Settings(directions="3"))
    assert three.angles_degrees == pytest.approx((0, 0, 0), abs=1e-4)
    plan = make_plan(space(), gradients, traits=DIRECTIONAL, settings=Settings())
    assert len(plan.used) == 13
    assert 1 not in plan.used  # the one along x
    nearest_to_x = np.abs(gradients.select(plan.used).directions[:, 0]).max()
    assert plan.angles_degrees == pytest.approx((np.rad2deg(np.arccos(nearest_to_x)), 0, 0), abs=1e-4)
    assert plan.angles_degrees[0] > 5


THREE = np.array([[1, 1, -0.5], [1, -0.5, 1], [-0.5, 1, 1]])
JITTER = 0.02 * np.random.default_rng(5).normal(size=(30, 3))


@pytest.mark.parametrize("repeats", [5, 6, 8, 10])
@pytest.mark.parametrize("directions", [np.eye(3), THREE, np.vstack([THREE, [1, 1, 1]])], ids=["axes", "three", "four"])
@pytest.mark.parametrize("jitter", [0, 1], ids=["equal", "corrected"])
def test_of_directions_that_are_repeated_a_model_takes_each_about_as_often(directions, repeats, jitter):
    """Clinical scans average three directions many times, and motion correction turns each repeat a little."""
    count = len(directions)
    repeated = np.tile(directions, (repeats, 1))[: 30 - 30 % count]
    gradients = table([1000] * len(repeated), repeated + jitter * JITTER[: len(repeated)])
    plan = make_plan(space(), gradients, traits=DIRECTIONAL, settings=Settings())
    times = np.bincount([(volume - 1) % count for volume in plan.used[1:]], minlength=count)
    assert times.sum() == 12
    assert times.max() - times.min() <= 1


def test_a_formula_works_on_the_scans_own_voxels_and_a_model_on_2_mm():
    thick = space((1.7, 1.7, 5), (100, 100, 30))
    gradients = table([1000] * 3)
    formula = make_plan(thick, gradients, traits=FORMULA, settings=Settings())
    model = make_plan(thick, gradients, traits=DIRECTIONAL, settings=Settings())
    assert formula.grid.working.voxel_size == pytest.approx((1.7, 1.7, 5))
    assert model.grid.working.voxel_size == pytest.approx((2, 2, 2))
    with pytest.raises(ConfigError, match="--grid 2mm"):
        make_plan(thick, gradients, traits=DIRECTIONAL, settings=Settings(spd="raw"))
    make_plan(thick, gradients, traits=FORMULA, settings=Settings(spd="raw"))
