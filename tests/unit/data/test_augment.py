"""Augmentation: after any move the signal is still what the moved tensor gives in the moved gradients [E1]."""

import itertools

import numpy as np
import pytest
import torch
from einops import rearrange
from scipy.spatial.transform import Rotation

from tensorldm.data.augment import Augmentation, augment, reaxis, rotate
from tensorldm.dti.signal import predict_signal

SIGNED_PERMUTATIONS = [
    (axes, signs) for axes in itertools.permutations(range(3)) for signs in itertools.product((1, -1), repeat=3)
]


def error_of_e1(batch):
    """Largest relative difference inside the mask between the signal and what tensor, b and directions predict."""
    packed = rearrange(batch.components, "b d x y z -> b x y z d")[0].double()
    signal = rearrange(batch.dwi, "b c x y z -> b x y z c")[0].double()
    predicted = predict_signal(packed, signal[..., 0], batch.bvals[0].double(), batch.directions[0].double())
    inside = batch.mask[0]
    return float(((signal - predicted).abs() / predicted)[inside].max())


@pytest.mark.parametrize(("axes", "signs"), SIGNED_PERMUTATIONS)
def test_the_signal_equation_holds_after_every_mirror_and_quarter_turn(make_subject, axes, signs):
    batch = make_subject().as_batch()
    moved = reaxis(batch, axes, signs=signs)
    assert error_of_e1(batch) < 1e-5
    assert error_of_e1(moved) < 1e-5
    assert moved.mask.shape[1:] == tuple(batch.mask.shape[1 + a] for a in axes)
    nearest = moved.directions[0, 1:].abs().argmax(dim=1)
    assert nearest.tolist() == [0, 1, 2]
    torch.testing.assert_close(moved.centre[0], moved.mask[0].nonzero().float().mean(dim=0))


def test_a_mirror_that_forgets_the_tensor_breaks_the_equation(make_subject):
    batch = make_subject().as_batch()
    moved = reaxis(batch, (0, 1, 2), signs=(-1, 1, 1))
    wrong = type(moved)(**{**vars(moved), "components": batch.components.flip(2)})
    assert error_of_e1(wrong) > 0.05


def test_a_mirror_flips_exactly_the_two_off_diagonals_of_its_axis(make_subject):
    batch = make_subject().as_batch()
    moved = reaxis(batch, (0, 1, 2), signs=(1, -1, 1))
    expected = batch.components.flip(3) * torch.tensor([1, 1, 1, -1, 1, -1]).reshape(1, 6, 1, 1, 1)
    torch.testing.assert_close(moved.components, expected, rtol=0, atol=0)
    assert torch.equal(moved.directions[0, :, 1], -batch.directions[0, :, 1])


@pytest.mark.parametrize(("axes", "signs"), SIGNED_PERMUTATIONS[::7])
def test_a_move_and_its_inverse_return_every_bit(make_subject, axes, signs):
    batch = make_subject().as_batch()
    back = tuple(axes.index(a) for a in range(3))
    returned = reaxis(reaxis(batch, axes, signs=signs), back, signs=tuple(signs[back[a]] for a in range(3)))
    for name in ("dwi", "components", "mask", "directions", "bvals"):
        assert torch.equal(getattr(returned, name), getattr(batch, name)), name


@pytest.mark.parametrize("degrees", [3.0, 17.0, 75.0])
def test_the_signal_equation_holds_exactly_after_any_rotation(make_subject, degrees):
    turn = Rotation.from_rotvec(np.radians(degrees) * np.array([0.6, -0.48, 0.64])).as_matrix()
    batch = make_subject().as_batch()
    moved = rotate(batch, torch.from_numpy(turn))
    assert moved.mask.sum() > 0.5 * batch.mask.sum()
    assert error_of_e1(moved) < 1e-4


def test_a_quarter_turn_by_interpolation_is_the_exact_quarter_turn(make_subject):
    batch = make_subject(shape=(9, 9, 9)).as_batch()
    quarter = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.float64)
    turned = rotate(batch, quarter)
    exact = reaxis(batch, (1, 0, 2), signs=(-1, 1, 1))
    assert torch.equal(turned.mask, exact.mask)
    torch.testing.assert_close(turned.components, exact.components, rtol=1e-4, atol=1e-8)
    # The same directions measured the same head; the exact form also re-orders the volumes named x and y.
    torch.testing.assert_close(turned.dwi[:, [0, 2, 1, 3]], exact.dwi, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(turned.directions[:, [0, 2, 1, 3]], exact.directions)


def test_turning_there_and_back_returns_a_smooth_head(make_subject):
    batch = make_subject(shape=(24, 24, 24), full_mask=True).as_batch()
    turn = torch.from_numpy(Rotation.from_euler("zyx", [8, -5, 6], degrees=True).as_matrix())
    back = rotate(rotate(batch, turn), turn.T.contiguous())
    inner = (slice(None), slice(None), *[slice(6, -6)] * 3)
    error = (back.components - batch.components)[inner].abs().max()
    assert error < 0.02 * batch.components[inner].abs().max()


def test_rotation_moves_the_head_with_its_tensors():
    """One rod of white matter along x, off-centre: turned about z it lies along y, elsewhere, with v1 along y."""
    from tensorldm.batch import Batch

    components = torch.zeros(1, 6, 11, 11, 11)
    components[:, :3] = 0.5e-3
    components[0, 0, :, 8, 5] = 1.7e-3
    mask = torch.ones(1, 11, 11, 11, dtype=torch.bool)
    batch = Batch(
        dwi=torch.ones(1, 4, 11, 11, 11),
        bvals=torch.tensor([[0.0, 1000, 1000, 1000]]),
        directions=torch.cat([torch.zeros(1, 3), torch.eye(3)])[None],
        components=components,
        clean=components,
        mask=mask,
        voxel_size=torch.full((1, 3), 2.0),
        centre=torch.tensor([[5.0, 8.0, 5.0]]),  # as if the rod were the brain
        subjects=("rod",),
    )
    quarter = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])  # x -> y, y -> -x
    turned = rotate(batch, quarter)
    assert turned.components[0, 1, 2, :, 5].min() > 1.6e-3  # y = +3 voxels became x = -3
    assert turned.components[0, 0].max() < 0.51e-3
    assert torch.allclose(turned.centre, torch.tensor([[2.0, 5.0, 5.0]]))


def test_voxels_outside_the_mask_do_not_bleed_in(make_subject):
    batch = make_subject().as_batch()
    poisoned = type(batch)(
        **{**vars(batch), "dwi": torch.where(batch.mask[:, None], batch.dwi, torch.tensor(1e6)), "clean": batch.clean}
    )
    turn = torch.from_numpy(Rotation.from_euler("z", 10, degrees=True).as_matrix())
    torch.testing.assert_close(rotate(poisoned, turn).dwi, rotate(batch, turn).dwi)


def test_the_same_draw_gives_the_same_move_and_nothing_is_done_unasked(make_subject):
    batch = make_subject().as_batch()
    settings = Augmentation(mirror_axes=(0, 1, 2), permute_axes=True, largest_rotation_degrees=10.0)
    once, again = (augment(batch, settings, draw=np.random.default_rng(5)) for _ in range(2))
    assert torch.equal(once.dwi, again.dwi)
    assert error_of_e1(once) < 1e-4
    assert augment(batch, Augmentation(), draw=np.random.default_rng(5)) is batch


def test_only_the_asked_axes_are_mirrored(make_subject):
    batch = make_subject().as_batch()
    seen = {
        tuple(augment(batch, Augmentation(mirror_axes=(0,)), draw=np.random.default_rng(s)).directions[0, 1].tolist())
        for s in range(20)
    }
    x, y, z = batch.directions[0, 1].tolist()
    assert seen == {(x, y, z), (-x, y, z)}
