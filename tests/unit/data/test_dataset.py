"""Streams: pure functions of (seed, position), fair to every subject, centred on brain."""

from collections import Counter

import numpy as np
import pytest
import torch

from tensorldm.data.augment import Augmentation
from tensorldm.data.dataset import PatchStream, VolumeStream, collate
from tensorldm.data.sampler import brain_corner, subject_at


def same(a, b):
    names = ("dwi", "components", "mask", "directions", "voxel_size", "centre")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def test_every_subject_comes_once_per_pass_and_passes_differ():
    passes = [[subject_at(turn * 50 + i, 50, seed=0) for i in range(50)] for turn in range(3)]
    assert all(sorted(each) == list(range(50)) for each in passes)
    assert passes[0] != passes[1] != passes[2]


def test_patch_centres_are_inside_the_brain_and_patches_inside_the_volume():
    mask = np.zeros((40, 50, 30), dtype=bool)
    mask[5:12, 30:45, 10:20] = True
    for position in range(200):
        corner = brain_corner(mask, (8, 8, 8), seed=0, position=position)
        centre = tuple(c + 4 for c in corner)
        assert mask[centre]
        assert all(0 <= c <= n - 8 for c, n in zip(corner, mask.shape, strict=True))


def test_every_part_of_the_brain_is_drawn():
    mask = np.zeros((12, 12, 12), dtype=bool)
    mask[2:4, 2:4, 2:4] = mask[8:10, 8:10, 8:10] = True
    corners = Counter(brain_corner(mask, (2, 2, 2), seed=1, position=i)[0] > 5 for i in range(400))
    assert 140 < corners[True] < 260


def test_a_volume_smaller_than_the_patch_lies_in_its_middle(make_store):
    batch = PatchStream(make_store()).batch(seed=0, position=0, size=1)
    assert batch.dwi.shape == (1, 4, 32, 32, 32)
    where = batch.mask[0].nonzero()
    assert (where.float().mean(dim=0) - 16).abs().max() < 2


@pytest.mark.parametrize("stream", ["patches", "volumes"])
def test_a_batch_is_the_items_at_its_positions_whatever_the_batch_size(make_store, stream):
    store = make_store()
    settings = Augmentation(mirror_axes=(0,), largest_rotation_degrees=5.0)
    if stream == "patches":
        source = PatchStream(store, size=(6, 6, 6), augmentation=settings)
    else:
        source = VolumeStream(store, box=(16, 16, 16), augmentation=settings)
    whole = source.batch(seed=3, position=10, size=4)
    resumed = type(source)(**vars(source))
    singles = [resumed.batch(seed=3, position=10 + i, size=1) for i in (3, 1, 0, 2)]
    rejoined = collate([singles[2], singles[1], singles[3], singles[0]], box=tuple(whole.mask.shape[1:]))
    assert same(whole, rejoined)
    assert whole.subjects == rejoined.subjects
    assert not same(whole, source.batch(seed=4, position=10, size=4))


def test_patches_hold_the_subjects_own_voxels(make_store):
    store = make_store()
    batch = PatchStream(store, size=(6, 6, 6)).batch(seed=0, position=0, size=3)
    for i, name in enumerate(batch.subjects):
        whole = store.load(name)
        corner = brain_corner(whole.mask.numpy(), (6, 6, 6), seed=0, position=i)
        box = tuple(slice(c, c + 6) for c in corner)
        torch.testing.assert_close(batch.components[i], whole.components[(slice(None), *box)])
        torch.testing.assert_close(batch.dwi[i], whole.dwi[(slice(None), *box)])
        middle = whole.mask.nonzero().float().mean(dim=0)
        torch.testing.assert_close(batch.centre[i] + torch.tensor(corner), middle)


def test_whole_volumes_of_different_size_share_a_box_and_lose_nothing(make_store):
    store = make_store()
    batch = VolumeStream(store, multiple=8).batch(seed=0, position=0, size=4)
    assert batch.dwi.shape == (4, 4, 16, 16, 16)
    for i, name in enumerate(batch.subjects):
        whole = store.load(name)
        assert batch.mask[i].sum() == whole.mask.sum()
        assert float(batch.components[i].double().sum()) == pytest.approx(float(whole.components.double().sum()))


def test_a_box_smaller_than_the_volume_is_cut_around_the_brain(make_store, make_subject):
    subject = make_subject("one", shape=(20, 20, 20))
    mask = torch.zeros(20, 20, 20, dtype=torch.bool)
    mask[1:7, 12:19, 8:14] = True
    store = make_store([type(subject)(**{**vars(subject), "mask": mask})])
    batch = VolumeStream(store, box=(8, 8, 8)).batch(seed=0, position=0, size=1)
    assert batch.mask.sum() == mask.sum()


def test_a_stream_only_sees_its_split(make_store):
    store = make_store(splits={"a": "train", "b": "validation", "c": "train", "d": "test"})
    batch = VolumeStream(store, "train").batch(seed=0, position=0, size=8)
    assert Counter(batch.subjects) == {"a": 4, "c": 4}


def test_on_another_device_the_volumes_move_and_what_describes_them_stays(make_store):
    batch = VolumeStream(make_store()).batch(seed=0, position=0, size=1).to("meta")
    assert {getattr(batch, name).device.type for name in ("dwi", "components", "clean", "mask")} == {"meta"}
    assert {getattr(batch, name).device.type for name in ("bvals", "directions", "voxel_size", "centre")} == {"cpu"}
