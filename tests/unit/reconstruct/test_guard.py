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
    assert len(guard.check_bvalue(float(bval), traits=DIRECTIONAL, force=True)) == 1


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
    b0, bvals = np.random.default_rng(0).uniform(80, 120, 500), np.full(3, 1000.0)

    def weighted(md):
        return b0[:, None] * np.exp(-bvals * md)

    assert guard.check_signal(b0, weighted(0.8e-3), bvals=bvals, force=False) == []
    (word,) = guard.check_signal(b0, weighted(3e-3), bvals=bvals, force=False)
    assert "0.003 mm²/s" in word
    holes = weighted(0.8e-3)
    holes[:20] = 0
    (word,) = guard.check_signal(b0, holes, bvals=bvals, force=False)
    assert word.startswith("4.0% of the mask has no signal")
    with pytest.raises(DataError, match="as bright as the b=0"):
        guard.check_signal(b0, weighted(-1e-4), bvals=bvals, force=False)
    assert "no diffusion" in guard.check_signal(b0, weighted(-1e-4), bvals=bvals, force=True)[0]


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
