import numpy as np
import pytest
import torch

from tensorldm.dti.signal import predict_signal
from tensorldm.imaging.flips import CANDIDATES, UNTESTABLE, check_flips, describe
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.volume import Space, Volume

SHAPE, SIZE = (24, 24, 20), np.array([2.0, 2.0, 2.5])


def spread_directions(count):
    """Points of a spiral on the half sphere."""
    z = (np.arange(count) + 0.5) / count
    turn = np.arange(count) * np.pi * (3 - np.sqrt(5))
    return np.stack([np.sqrt(1 - z**2) * np.cos(turn), np.sqrt(1 - z**2) * np.sin(turn), z], axis=1)


def table(directions, bval=1000.0):
    bvals = np.array([0.0] + [bval] * len(directions))
    return GradientTable(bvals, np.vstack([np.zeros(3), directions]))


def measured(fibre, gradients, *, snr=30.0):
    """A noisy series of sticks along ``fibre``, isotropic where that is zero."""
    inside = fibre.any(axis=-1)[..., None, None]
    matrices = np.where(inside, 3e-4, 8e-4) * np.eye(3) + 1.4e-3 * fibre[..., :, None] * fibre[..., None, :]
    packed = torch.from_numpy(matrices[..., [0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
    tables = torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions)
    signal = predict_signal(packed, torch.full(SHAPE, 500.0, dtype=torch.float64), *tables).numpy()
    noise = np.random.default_rng(0).normal(scale=500 / snr, size=(2, *signal.shape))
    return Volume(np.hypot(signal + noise[0], noise[1]).astype(np.float32), Space(SHAPE, np.diag([*SIZE, 1.0])))


def tracts(gradients, *, snr=30.0):
    """Thin straight tracts in many directions: neighbours agree along a tract, not across. And a mask of everything."""
    draw = np.random.default_rng(3)
    place = np.stack(np.meshgrid(*map(np.arange, SHAPE), indexing="ij"), axis=-1) * SIZE
    fibre = np.zeros((*SHAPE, 3))
    for _ in range(25):
        along = draw.normal(size=3)
        along /= np.linalg.norm(along)
        away = place - draw.uniform(0.2, 0.8, 3) * SHAPE * SIZE
        away = away - (away @ along)[..., None] * along
        fibre[np.linalg.norm(away, axis=-1) < 3.0] = along
    return measured(fibre, gradients, snr=snr), np.ones(SHAPE, bool)


def test_the_24_candidates_are_distinct_up_to_sign():
    flat = {tuple((np.sign(c.ravel()[np.flatnonzero(c)[0]]) * c).ravel()) for c in CANDIDATES}
    assert len(flat) == len(CANDIDATES) == 24
    np.testing.assert_array_equal(CANDIDATES[0], np.eye(3))
    assert describe(np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])) == "-y, x, z"


def test_a_right_table_is_verified_with_its_margin():
    gradients = table(spread_directions(12))
    volume, mask = tracts(gradients)
    check = check_flips(volume, gradients, mask=mask)
    assert check.status == "verified"
    assert check.margin > 0.05
    assert check.correction is None


@pytest.mark.parametrize("index", range(1, 24))
def test_every_flip_and_swap_is_noticed_and_its_correction_named(index):
    right = table(spread_directions(6))
    volume, mask = tracts(right)
    wrong = right.turned(CANDIDATES[index])
    check = check_flips(volume, wrong, mask=mask)
    assert check.status == "suspect"
    assert check.margin < -0.05
    mended = wrong.turned(check.correction).directions
    agreement = np.abs((mended * right.directions).sum(axis=1))[1:]
    np.testing.assert_allclose(agreement, 1)
    assert describe(check.correction) in check_flips(volume, wrong, mask=mask, to_file=np.eye(3)).message


@pytest.mark.parametrize("count", [3, 5])
def test_too_few_directions_are_never_passed(count):
    gradients = table(spread_directions(count))
    volume, mask = tracts(gradients)
    check = check_flips(volume, gradients, mask=mask)
    assert (check.status, check.message) == ("untestable", "gradient signs cannot be verified from these volumes")
    assert check.margin is None


def test_many_directions_that_do_not_spread_are_never_passed():
    flat = spread_directions(12) * [1, 1, 0.01]
    gradients = table(flat / np.linalg.norm(flat, axis=1, keepdims=True))
    volume, mask = tracts(gradients)
    assert check_flips(volume, gradients, mask=mask).message == UNTESTABLE


def test_noise_and_an_empty_white_matter_are_never_passed():
    gradients = table(spread_directions(12))
    volume, mask = tracts(gradients, snr=0.5)
    assert check_flips(volume, gradients, mask=mask).status == "untestable"
    assert check_flips(volume, gradients, mask=np.zeros_like(mask)).status == "untestable"


def test_a_series_without_b0_is_untestable():
    gradients = table(spread_directions(12))
    volume, mask = tracts(gradients)
    weighted = list(range(1, 13))
    check = check_flips(volume.with_data(volume.data[..., weighted]), gradients.select(weighted), mask=mask)
    assert check.status == "untestable"


def test_one_direction_everywhere_says_nothing_of_flips_and_is_never_passed():
    gradients = table(spread_directions(12))
    volume = measured(np.broadcast_to([0.36, 0.48, 0.8], (*SHAPE, 3)), gradients)
    assert check_flips(volume, gradients, mask=np.ones(SHAPE, bool)).status == "untestable"


def test_voxels_too_coarse_for_single_bundles_are_never_judged():
    gradients = table(spread_directions(12))
    volume, mask = tracts(gradients)
    assert check_flips(volume, gradients, mask=mask).status == "verified"
    coarse = Volume(volume.data, Space(SHAPE, np.diag([6.0, 6.0, 6.0, 1.0])))
    assert check_flips(coarse, gradients, mask=mask).status == "untestable"
