import pytest
import torch

from tensorldm.networks.windows import FORBIDDEN, WINDOW, WindowGrid, relative_positions, token_flags

SIZES = [(4, 4, 4), (8, 4, 12), (5, 6, 7), (3, 9, 4)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0, 2])
def test_windows_put_together_again_are_the_volume(size, shift, generator):
    grid = WindowGrid(size, shift=shift)
    stack = torch.randn(2, 3, 5, *size, generator=generator)
    assert torch.equal(grid.restore(grid.join(grid.cut(grid.arrange(stack)))), stack)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shift", [0, 2])
def test_flags_permit_exactly_the_pairs_that_are_real_and_in_one_window(size, shift):
    """The oracle knows each token's place: a key must be a real voxel of the query's own (shifted) window."""
    grid = WindowGrid(size, shift=shift)
    axes = torch.meshgrid(*(torch.arange(float(side)) for side in size), indexing="ij")
    places = torch.stack([*axes, torch.ones(size)])[None, None]
    tokens = grid.cut(grid.arrange(places))[:, 0]
    place, real = tokens[..., :3], tokens[..., 3] > 0
    window = (place - shift).div(WINDOW, rounding_mode="floor")
    permitted = (window[:, :, None] == window[:, None, :]).all(dim=-1) & real[:, None, :]
    queries, keys = token_flags(grid, torch.zeros(()))
    logits = queries @ keys.mT
    asks = real[:, :, None].expand_as(logits)
    assert torch.equal((logits == 0)[asks], permitted[asks])
    assert bool((logits[asks & ~permitted] <= FORBIDDEN).all())


def test_a_grid_of_whole_windows_needs_no_flags_unless_shifted():
    assert not WindowGrid((8, 4, 12), shift=0).needs_flags
    assert WindowGrid((8, 4, 12), shift=2).needs_flags
    assert WindowGrid((8, 5, 12), shift=0).needs_flags


def test_relative_positions_depend_on_the_offset_alone():
    index = relative_positions()
    assert index.shape == (64, 64)
    assert len(index.unique()) == 343
    place = {n: (n // 16, n // 4 % 4, n % 4) for n in range(64)}
    offsets = {}
    for n in range(64):
        for m in range(64):
            offset = tuple(a - b for a, b in zip(place[n], place[m], strict=True))
            assert offsets.setdefault(offset, int(index[n, m])) == int(index[n, m])
