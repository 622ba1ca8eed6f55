"""Anatomies and the first heads made from them, opened once a process: every stage, trial and run of it shares them.

A stage of half a minute begins where the one before began, at position 0 of the same stream, and would spend a third of
its time on making the same heads again. What is shared is only what would be made again: no sample changes.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import torch

from tensorldm import bounded
from tensorldm.batch import Batch
from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.config import CohortConfig
from tensorldm.cohort.sources import JOIN, TEMPLATES
from tensorldm.cohort.stream import VirtualStream
from tensorldm.training.streams import Stream, join, num_bytes

Pause = Callable[[], None]
"""Called where opening may stop: raises where somebody asked to."""
SHARE_OF_MEMORY: Final = 8
"""An eighth of the machine's is the most that waiting heads take: several runs may be at work."""
SPLITS_KEPT: Final = 2
"""Training and validation; those of other settings make room."""


@dataclass
class Waiting:
    """The first ``count`` heads that are asked for wait in the host's memory, where a GPU's would be too dear."""

    stream: Stream
    count: int
    device: torch.device
    most_bytes: int
    _heads: dict[tuple[int, int], Batch] = field(default_factory=dict)
    _bytes: int = 0

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """``size`` heads from ``position`` on."""
        heads = [self._head(seed, place) for place in range(position, position + size)]
        return heads[0] if size == 1 else join(heads)

    def _head(self, seed: int, position: int) -> Batch:
        found = self._heads.get((seed, position))
        if found is not None:
            return found.to(self.device)
        made = self.stream.batch(seed=seed, position=position, size=1)
        if len(self._heads) < self.count and self._bytes + num_bytes(made) <= self.most_bytes:
            self._heads[seed, position] = made.to("cpu")
            self._bytes += num_bytes(made)
        return made


@dataclass(frozen=True)
class OpenedStream:
    """A stream of virtual subjects, and the same with its first heads waiting."""

    made: VirtualStream
    waiting: Waiting


_opened: "OrderedDict[str, OpenedStream]" = OrderedDict()


def open_stream(
    source: AnatomySource, *, where: str, cohort: CohortConfig, device: torch.device, heads: int, pause: Pause
) -> OpenedStream:
    """A source's anatomies as a stream; the one of before where nothing that decides it has changed."""
    key = _key(source.names, where=where, cohort=cohort, device=device, heads=heads)
    if key not in _opened:
        while len(_opened) >= SPLITS_KEPT:  # before the new anatomies need the memory
            _opened.popitem(last=False)
        made = VirtualStream.from_source(source, source.names, settings=cohort.settings, device=device, between=pause)
        most = bounded.machine_bytes() // SHARE_OF_MEMORY
        _opened[key] = OpenedStream(made, Waiting(made, heads, device, most))
    _opened.move_to_end(key)
    return _opened[key]


def let_go() -> None:
    """Free what is shared: what comes next in this process trains nothing."""
    _opened.clear()


def _key(names: Sequence[str], *, where: str, cohort: CohortConfig, device: torch.device, heads: int) -> str:
    what = [where, _files(where), list(names), cohort.model_dump(mode="json"), str(device), heads]
    return json.dumps(what, sort_keys=True)


def _files(where: str) -> list[tuple[str, int, int]]:
    """Name, size and time of every file of the template folders among the sources."""
    folders = [Path(part.removeprefix(TEMPLATES)) for part in where.split(JOIN) if part.startswith(TEMPLATES)]
    found = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [(str(path), (state := path.stat()).st_size, state.st_mtime_ns) for path in found]
