"""A method that the first process holds and its workers use: one GPU, one model, many scans around it.

A worker reads and prepares a scan, asks for its samples, and goes on to maps and files; while it does, the first
process has other workers' scans to work on. So reading, resampling, compressing and drawing overlap with the network.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.errors import DataError, DataWarning, ToolError, heard
from tensorldm.reconstruct.engine import Engine, Traits, WorkingScan
from tensorldm.reconstruct.uncertainty import Calibration
from tensorldm.work.serving import Message, ask


@dataclass(eq=False)
class SharedEngine:
    """The worker's side: an engine whose work is done elsewhere. Made anew for each scan."""

    traits: Traits
    name: str
    """Of the scan, for those who watch."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """As they are after ``estimate``: an engine that ran out of GPU memory says another device than before."""
    calibration: Calibration = field(default_factory=Calibration)
    waited: float = 0.0
    """Seconds until the first process had time, and for the way there and back."""

    def estimate(self, scan: WorkingScan) -> Float[Tensor, "k v 6"]:
        """What the first process's engine gives; its warnings are said here."""
        start = time.perf_counter()
        answer = ask(_packed(scan, self.name))
        self.notes, self.calibration, words, seconds = answer.note
        self.waited = time.perf_counter() - start - seconds
        for word in words:
            warnings.warn(word, DataWarning, stacklevel=2)
        return torch.from_numpy(answer.arrays[0])


@dataclass(frozen=True, eq=False)
class EngineAtDesk:
    """The first process's side: answers with samples; the engine is loaded when it is first needed."""

    load: Callable[[], Engine]
    """Gives the same engine each time."""
    begin: Callable[[str], None]
    """Hears the name of each scan that is begun."""

    def __call__(self, message: Message) -> Message:
        """The samples of a scan, and what is to be said of them."""
        scan, name = _unpacked(message)
        try:
            engine = self.load()
        except DataError as error:
            raise ToolError(str(error)) from error  # about the model's files: the scan's name has no place before it
        self.begin(name)
        start = time.perf_counter()
        with heard() as words:
            samples = engine.estimate(scan)
        seconds = time.perf_counter() - start
        return Message((dict(engine.notes), engine.calibration, words, seconds), (samples.numpy(),))


def _packed(scan: WorkingScan, name: str) -> Message:
    arrays = tuple(tensor.numpy() for tensor in (scan.dwi, scan.bvals, scan.directions, scan.mask))
    return Message((name, scan.voxel_size, scan.b0_scale, scan.key), arrays)


def _unpacked(message: Message) -> tuple[WorkingScan, str]:
    name, voxel_size, b0_scale, key = message.note
    dwi, bvals, directions, mask = map(torch.from_numpy, message.arrays)
    scan = WorkingScan(dwi, bvals, directions, mask, voxel_size=voxel_size, b0_scale=b0_scale, key=key)
    return scan, name
