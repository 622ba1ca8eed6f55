"""Training batches from a store: brain-weighted patches and whole volumes, endless and without state.

Every item is a pure function of (seed, position): which subject, which patch, which augmentation. A batch is the
items position .. position + size - 1, so "the same command again" goes on exactly where it was, and several
processes that take turns in positions see what one process would.
Axes: b batch, c DWI volume, d tensor component (6), x y z space.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional as F

from tensorldm.batch import VOLUMES, Batch, mask_centre
from tensorldm.data.augment import NO_AUGMENTATION, Augmentation, augment
from tensorldm.data.sampler import brain_corner, subject_at
from tensorldm.data.store import Store
from tensorldm.errors import ConfigError
from tensorldm.imaging.heads import Split
from tensorldm.rng import numpy_generator

Box = tuple[int, int, int]
PATCH: Box = (32, 32, 32)
"""[choice: patches] The paper's Stage 1."""


@dataclass(frozen=True)
class PatchStream:
    """Patches with their centre inside the brain."""

    store: Store
    split: Split = "train"
    size: Box = PATCH
    augmentation: Augmentation = NO_AUGMENTATION

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` items from ``position`` on."""
        return collate([self._item(seed, position + i) for i in range(size)], box=self.size)

    def _item(self, seed: int, position: int) -> Batch:
        names = self.store.split(self.split)
        name = names[subject_at(position, len(names), seed=seed)]
        mask = self.store.mask(name)
        corner = brain_corner(mask, self.size, seed=seed, position=position)
        middle = mask_centre(torch.from_numpy(mask)[None])
        patch = self.store.load_box(name, corner, size=self.size).as_batch(middle - torch.tensor(corner))
        return augment(patch, self.augmentation, draw=numpy_generator(seed, "augment", position))


@dataclass(frozen=True)
class VolumeStream:
    """Whole heads, in a fixed box if one is given, else padded to the smallest box that holds the batch."""

    store: Store
    split: Split = "train"
    box: Box | None = None
    multiple: int = 1
    """Sides of a box found from the batch are rounded up to this, for networks that halve the grid."""
    augmentation: Augmentation = NO_AUGMENTATION

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` items from ``position`` on."""
        items = [self._item(seed, position + i) for i in range(size)]
        return collate(items, box=self.box or common_box(items, multiple=self.multiple))

    def _item(self, seed: int, position: int) -> Batch:
        names = self.store.split(self.split)
        head = self.store.load(names[subject_at(position, len(names), seed=seed)]).as_batch()
        return augment(head, self.augmentation, draw=numpy_generator(seed, "augment", position))


def common_box(items: Sequence[Batch], *, multiple: int = 1) -> Box:
    """The smallest box, its sides multiples of ``multiple``, that holds every item."""
    x, y, z = (-(-max(item.mask.shape[1 + axis] for item in items) // multiple) * multiple for axis in range(3))
    return x, y, z


def collate(items: Sequence[Batch], *, box: Box) -> Batch:
    """One batch of one size: each item's brain in the middle of the box, zeros around it, the overhang cut off."""
    require_one_number(items)
    boxed = [_boxed(item, box) for item in items]
    joined = {
        field.name: torch.cat([getattr(item, field.name) for item in boxed])
        for field in fields(Batch)
        if field.name != "subjects"
    }
    return Batch(**joined, subjects=tuple(name for item in items for name in item.subjects))


def require_one_number(items: Sequence[Batch]) -> None:
    """Refuse to join scans of different numbers of volumes."""
    counts = sorted({item.dwi.shape[1] for item in items})
    if len(counts) > 1:
        raise ConfigError(
            f"The subjects {items[0].subjects[0]} to {items[-1].subjects[-1]} have {counts[0]} to {counts[-1]} input "
            "volumes, and a batch has one number. Let the batch size divide data.replay_group and the cohort's "
            "protocol.scheme.group."
        )


def _boxed(item: Batch, box: Box) -> Batch:
    space = tuple(item.mask.shape[1:])
    if space == box:
        return item
    pads = [_around(item.mask, axis, box[axis]) for axis in range(3)]
    flat = [side for pair in reversed(pads) for side in pair]
    moved: dict[str, Tensor] = {name: F.pad(getattr(item, name), flat) for name in VOLUMES}
    moved["centre"] = item.centre + item.centre.new_tensor([before for before, _ in pads])
    return Batch(**{**{field.name: getattr(item, field.name) for field in fields(Batch)}, **moved})


def _around(mask: Tensor, axis: int, wanted: int) -> tuple[int, int]:
    """Voxels to add before and after an axis (negative: to cut) so that the brain is in the middle."""
    extent = mask.shape[1 + axis]
    if extent <= wanted:  # nothing need be cut, and the volume itself is put in the middle
        before = (wanted - extent) // 2
        return before, wanted - extent - before
    brain = torch.nonzero(mask.any(dim=tuple({0, 1, 2, 3} - {1 + axis}))).flatten()
    middle = (int(brain[0]) + int(brain[-1]) + 1) // 2 if len(brain) else extent // 2
    before = min(0, max(wanted - extent, wanted // 2 - middle))
    return before, wanted - extent - before
