import itertools
from collections import Counter
from dataclasses import fields, replace

import pytest
import torch

from tensorldm.batch import Batch
from tensorldm.errors import ConfigError
from tensorldm.training.streams import Ahead, Boxed, Kept, Patches, Replayed, join, num_bytes, split


def _same(a: Batch, b: Batch) -> bool:
    values = [(getattr(a, f.name), getattr(b, f.name)) for f in fields(Batch)]
    return all(torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y for x, y in values)


class _Counting:
    def __init__(self, stream) -> None:
        self.stream, self.made = stream, []

    def batch(self, *, seed, position, size):
        self.made += range(position, position + size)
        return self.stream.batch(seed=seed, position=position, size=size)


STREAMS = {
    "boxed": lambda heads: Boxed(heads, (6, 10, 8)),
    "patches": lambda heads: Patches(heads, (4, 4, 4)),
    "patches of heads that come again": lambda heads: Patches(Replayed(heads, 3, window=4, group=2), (4, 4, 4)),
    "kept": lambda heads: Kept(heads, count=3, gib=1.0),
    "read ahead": Ahead,
}


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_a_sample_depends_on_its_position_and_not_on_how_it_was_asked_for(make, heads):
    together = make(heads).batch(seed=1, position=4, size=3)
    stream = make(heads)
    one_by_one = join([stream.batch(seed=1, position=position, size=1) for position in (4, 5, 6)])
    assert _same(together, one_by_one)
    backwards = [make(heads).batch(seed=1, position=position, size=1) for position in (6, 5, 4)]
    assert _same(together, join(backwards[::-1]))


def test_splitting_and_joining_is_the_identity(heads):
    batch = heads.batch(seed=0, position=0, size=3)
    assert _same(join(split(batch)), batch)


def test_a_box_keeps_every_brain_voxel_it_can_hold(heads):
    whole = heads.batch(seed=0, position=0, size=1)
    boxed = Boxed(heads, (12, 12, 12)).batch(seed=0, position=0, size=1)
    assert boxed.mask.shape == (1, 12, 12, 12)
    assert boxed.mask.sum() == whole.mask.sum()
    assert torch.allclose(boxed.components.sum(), whole.components.sum())


def test_a_patch_knows_the_middle_of_the_brain_it_was_cut_from(heads):
    """In world terms: the same voxel is as far from the middle in the patch as in the head."""
    whole = heads.batch(seed=0, position=0, size=1)
    for position in range(4):
        patch = Patches(Kept(heads, count=1, gib=1.0), (4, 4, 4)).batch(seed=0, position=position, size=1)
        (corner,) = [
            torch.tensor(corner)
            for corner in itertools.product(range(5), repeat=3)
            if torch.equal(whole.dwi[0, :, *(slice(a, a + 4) for a in corner)], patch.dwi[0])
        ]
        assert torch.allclose(patch.centre[0] + corner, whole.centre[0])
    padded = Boxed(heads, (12, 10, 6)).batch(seed=0, position=0, size=1)
    assert torch.allclose(padded.centre - whole.centre, torch.tensor([2.0, 1.0, -1.0]))


def test_patches_of_one_head_make_that_head_once_and_touch_the_brain(heads):
    counting = _Counting(heads)
    stream = Patches(Replayed(counting, times=4, window=2, group=2), (4, 4, 4))
    patches = [stream.batch(seed=0, position=position, size=2) for position in range(0, 8, 2)]
    assert sorted(counting.made) == [0, 1]
    assert all(bool(patch.mask.flatten(1).any(dim=1).all()) for patch in patches)
    assert not _same(patches[0], patches[1])


def test_a_patch_is_cut_from_its_head_with_signal_tensor_and_mask_at_the_same_place(heads):
    head = heads.batch(seed=0, position=0, size=1)
    patch = Patches(heads, (4, 4, 4)).batch(seed=0, position=0, size=1)
    found = [
        (x, y, z)
        for x in range(5)
        for y in range(5)
        for z in range(5)
        if torch.equal(head.components[..., x : x + 4, y : y + 4, z : z + 4], patch.components)
    ]
    assert len(found) == 1
    x, y, z = found[0]
    assert torch.equal(head.dwi[..., x : x + 4, y : y + 4, z : z + 4], patch.dwi)
    assert torch.equal(head.mask[..., x : x + 4, y : y + 4, z : z + 4], patch.mask)


def test_kept_subjects_come_round_again_without_being_made_again(heads):
    counting = _Counting(heads)
    stream = Kept(counting, count=2, gib=1.0)
    batch = stream.batch(seed=0, position=0, size=6)
    assert batch.subjects == ("tiny0", "tiny1") * 3
    assert counting.made == [0, 1]


def test_memory_for_kept_subjects_is_bounded(heads):
    one = num_bytes(heads.batch(seed=0, position=0, size=1))
    stream = Kept(heads, count=10, gib=2.5 * one / 2**30)
    stream.batch(seed=0, position=0, size=10)
    assert len(stream._kept) == 2


def test_reading_ahead_reads_each_batch_once(heads):
    counting = _Counting(heads)
    stream = Ahead(counting)
    for position in range(0, 12, 4):  # one of two processes: takes two, leaves two
        stream.batch(seed=0, position=position, size=2)
    stream._thread.shutdown()
    assert sorted(counting.made) == sorted({*counting.made})
    assert {0, 1, 4, 5, 8, 9} <= {*counting.made}


class _Growing:
    """Heads whose number of volumes is another in every group of four."""

    def __init__(self, heads) -> None:
        self.heads = heads

    def batch(self, *, seed, position, size):
        head, volumes = self.heads.batch(seed=seed, position=position, size=size), [*range(4)] + [3] * (position // 4)
        return replace(
            head, dwi=head.dwi[:, volumes], bvals=head.bvals[:, volumes], directions=head.directions[:, volumes]
        )


@pytest.mark.parametrize("kind", ["whole", "patches"])
def test_a_batch_of_scans_with_different_numbers_of_volumes_is_refused_with_what_to_do(kind, heads):
    replayed = Replayed(_Growing(heads), times=2, window=8, group=4)
    stream = Patches(replayed, (4, 4, 4)) if kind == "patches" else Boxed(replayed, (8, 8, 8))
    assert stream.batch(seed=0, position=0, size=4).mask.shape[0] == 4
    order = [replayed.place(0, position)[1] // 4 for position in range(16)]
    border = next(position for position in range(16) if order[position] != order[position + 1])
    with pytest.raises(ConfigError, match=r"have 4 to 5 input volumes.*Let the batch size divide data\.replay_group"):
        stream.batch(seed=0, position=border, size=2)


class _Numbered:
    """Gives subjects that are nothing but their position, and counts how often each was made."""

    def __init__(self) -> None:
        self.made = Counter()

    def batch(self, *, seed, position, size):
        self.made[position] += size
        return numbered(position)


def numbered(position):
    zeros = torch.zeros(1, 1, 2, 2, 2)
    return Batch(
        dwi=zeros + position,
        bvals=torch.zeros(1, 1),
        directions=torch.zeros(1, 1, 3),
        components=zeros.expand(1, 6, 2, 2, 2),
        clean=zeros.expand(1, 6, 2, 2, 2),
        mask=zeros[:, 0] == 0,
        voxel_size=torch.full((1, 3), 2.0),
        centre=torch.full((1, 3), 0.5),
        subjects=(str(position),),
    )


def test_a_replayed_stream_gives_each_subject_as_often_as_asked_and_makes_it_once():
    stream = _Numbered()
    replayed = Replayed(stream, times=3, window=8, group=4)
    heard = [name for place in range(0, 48, 4) for name in replayed.batch(seed=0, position=place, size=4).subjects]
    assert Counter(heard) == {str(place): 3 for place in range(16)}
    assert stream.made == dict.fromkeys(range(16), 1)
    assert set(heard[:24]) == {str(place) for place in range(8)}, "one window after the other"


def test_a_replayed_stream_keeps_neighbours_together_and_does_not_depend_on_the_batch_size():
    in_fours, in_twos = (Replayed(_Numbered(), times=2, window=8, group=4) for _ in range(2))
    first = [in_fours.batch(seed=1, position=place, size=4).subjects for place in range(0, 16, 4)]
    again = [in_twos.batch(seed=1, position=place, size=2).subjects for place in range(0, 16, 2)]
    assert [name for batch in first for name in batch] == [name for batch in again for name in batch]
    groups = [sorted(map(int, names)) for names in first]
    assert sorted(groups) == sorted([[0, 1, 2, 3], [4, 5, 6, 7]] * 2)
    assert len(set(first)) > 2, "each time in another order"
