"""Streams of samples: pure functions of (seed, position) that are boxed, cut into patches, kept and read ahead.

A position counts samples from the start of a stage over all processes, so neither the batch size, nor the number of
processes, nor a restart changes what a sample is.
"""

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from tensorldm.batch import VOLUMES, Batch
from tensorldm.data.dataset import Box, collate, require_one_number
from tensorldm.data.sampler import brain_voxels, corner_about
from tensorldm.rng import generator

GIB = 2**30
REMEMBERED = 512
"""Heads whose brain's voxels are at hand; one to two megabytes each."""


@runtime_checkable
class Stream(Protocol):
    """What gives samples."""

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` samples from ``position`` on."""
        ...


@dataclass(frozen=True)
class Boxed:
    """Volumes padded and cropped to one box, each about its own brain."""

    stream: Stream
    box: Box

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` volumes from ``position`` on."""
        return collate(split(self.stream.batch(seed=seed, position=position, size=size)), box=self.box)


@dataclass
class Patches:
    """Brain-weighted patches of a stream's heads, one from each position of it."""

    stream: Stream
    box: Box
    _brains: "OrderedDict[str, Int[ndarray, ' _']]" = field(default_factory=OrderedDict)
    """Voxels of the last heads' brains: finding them takes longer than cutting a patch."""

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` patches from ``position`` on."""
        places = range(position, position + size)
        heads = (self.stream.batch(seed=seed, position=place, size=1) for place in places)
        return collate([self._cut(head, seed, place) for head, place in zip(heads, places, strict=True)], box=self.box)

    def _cut(self, head: Batch, seed: int, position: int) -> Batch:
        x, y, z = head.mask.shape[1:]
        corner = corner_about(self._brain(head), (x, y, z), size=self.box, seed=seed, position=position)
        low = [max(start, 0) for start in corner]
        high = [start + length for start, length in zip(corner, self.box, strict=True)]
        place = (..., *(slice(start, end) for start, end in zip(low, high, strict=True)))
        cut = {name: getattr(head, name)[place] for name in VOLUMES}
        return replace(head, **cut, centre=head.centre - head.centre.new_tensor(low))

    def _brain(self, head: Batch) -> Int[ndarray, " _"]:
        name = head.subjects[0]
        if name not in self._brains:
            self._brains[name] = brain_voxels(head.mask[0].cpu().numpy())
            while len(self._brains) > REMEMBERED:
                self._brains.popitem(last=False)
        return self._brains[name]


@dataclass
class Kept:
    """The first ``count`` subjects of a stream over and over, as many of them in memory as fit."""

    stream: Stream
    count: int
    gib: float
    _kept: "OrderedDict[tuple[int, int], Batch]" = field(default_factory=OrderedDict)
    _bytes: int = 0

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` subjects from ``position`` on."""
        items = [self._subject(seed, place % self.count) for place in range(position, position + size)]
        return items[0] if size == 1 else join(items)

    def _subject(self, seed: int, position: int) -> Batch:
        key = (seed, position)
        if key in self._kept:
            return self._kept[key]
        subject = self.stream.batch(seed=seed, position=position, size=1)
        self._kept[key] = subject
        self._bytes += num_bytes(subject)
        # The oldest goes: with more subjects than fit each pass makes them anew, which is slow but right.
        while self._bytes > self.gib * GIB and self._kept:
            self._bytes -= num_bytes(self._kept.popitem(last=False)[1])
        return subject


@dataclass
class Replayed:
    """Each subject of an endless stream several times, not in a row: making a head takes longer than learning from it.

    Subjects come in groups of neighbours (which have the same number of volumes). The groups of a window are dealt
    out ``times`` times in an order drawn for that window, and each time their members in another order, so that two
    scans of one head, which are neighbours too, seldom meet in a batch. Then the next window begins.
    """

    stream: Stream
    times: int
    window: int
    group: int
    _kept: dict[int, Batch] = field(default_factory=dict)
    _window: tuple[int, int] | None = None
    _dealt: tuple[tuple[int, int], tuple[list[int], list[list[int]]]] | None = None

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` samples from ``position`` on."""
        places = [self.place(seed, place) for place in range(position, position + size)]
        items = [self._subject(seed, window, subject) for window, subject in places]
        return items[0] if size == 1 else join(items)

    def place(self, seed: int, position: int) -> tuple[int, int]:
        """The window and the subject of the stream that stand at a position."""
        window, within = divmod(position, self.window * self.times)
        turn, member = divmod(within, self.group)
        groups, members = self._order(seed, window)
        return window, window * self.window + groups[turn] * self.group + members[turn][member]

    def _order(self, seed: int, window: int) -> tuple[list[int], list[list[int]]]:
        """Which group each turn is, and its members' order."""
        if self._dealt is None or self._dealt[0] != (seed, window):
            random, count = generator(seed, "replay", window), self.window // self.group
            turns = torch.randperm(count * self.times, generator=random)
            members = torch.rand(len(turns), self.group, generator=random).argsort(dim=1)
            self._dealt = (seed, window), ((turns % count).tolist(), members.tolist())
        return self._dealt[1]

    def _subject(self, seed: int, window: int, subject: int) -> Batch:
        if self._window != (seed, window):
            self._kept, self._window = {}, (seed, window)
        if subject not in self._kept:
            self._kept[subject] = self.stream.batch(seed=seed, position=subject, size=1)
        return self._kept[subject]


class Ahead:
    """Reads the batch that will be asked for next while the device computes; for streams that read files."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
        self._next: tuple[tuple[int, int, int], Future[Batch]] | None = None
        self._last: tuple[int, int] | None = None

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` samples from ``position`` on; the stride between two calls is taken to repeat."""
        key = (seed, position, size)
        ready = self._next[1].result() if self._next and self._next[0] == key else self._read(*key)
        stride = position - self._last[1] if self._last and self._last[0] == seed else size
        self._last = (seed, position)
        if stride > 0:
            upcoming = (seed, position + stride, size)
            self._next = (upcoming, self._thread.submit(self._read, *upcoming))
        return ready

    def _read(self, seed: int, position: int, size: int) -> Batch:
        return self.stream.batch(seed=seed, position=position, size=size)


def split(batch: Batch) -> list[Batch]:
    """Each sample as a batch of one."""
    count = len(batch.subjects)
    tensors = {f.name: getattr(batch, f.name).split(1) for f in fields(Batch) if f.name != "subjects"}
    return [
        Batch(**{name: parts[i] for name, parts in tensors.items()}, subjects=(batch.subjects[i],))
        for i in range(count)
    ]


def join(items: Sequence[Batch]) -> Batch:
    """Batches of one grid as one."""
    require_one_number(items)
    tensors = {
        f.name: torch.cat([getattr(item, f.name) for item in items]) for f in fields(Batch) if f.name != "subjects"
    }
    return Batch(**tensors, subjects=tuple(name for item in items for name in item.subjects))


def num_bytes(batch: Batch) -> int:
    """Memory that a batch takes."""
    values = (getattr(batch, f.name) for f in fields(Batch))
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, Tensor))
