"""Samples of subjects whose truth is known, judged by it: drawn now, or kept from when the same was asked before."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from tensorldm.experiments.coverage import Observed
from tensorldm.experiments.kept_observations import KeptObservations
from tensorldm.experiments.known_scans import KnownScan, VirtualSplit
from tensorldm.reconstruct.calibration import judge
from tensorldm.reconstruct.engine import Engine

Tell = Callable[[str], None]
KEPT = ", kept from before"
"""Told behind the name of a subject that was not drawn again."""


@dataclass(frozen=True)
class Observer:
    """An engine that is loaded when something is to be drawn, and what it has drawn already."""

    load: Callable[[], Engine]
    device: torch.device
    """Where virtual heads are made."""
    kept: KeptObservations
    tell: Tell

    @cached_property
    def engine(self) -> Engine:
        """Loaded once, and not at all where everything is kept."""
        return self.load()

    def observe_split(self, split: VirtualSplit) -> list[Observed]:
        """Every subject of a split, in its order; those that are kept are not made again."""
        known = {place: self.kept.read(_key_of(split, place)) for place in split.dealt}
        fresh = split.scans(self.device, without=frozenset(place for place in known if known[place] is not None))
        observed = []
        for place, found in known.items():
            if found is None:
                found = observe(next(fresh), self.engine)
                self.kept.write(_key_of(split, place), found)
                self.tell(f"{split.split}: {found.name}")
            else:
                self.tell(f"{split.split}: {found.name}{KEPT}")
            observed.append(found)
        return observed

    def observe_series(self, known: KnownScan) -> Observed:
        """A real series that has been read."""
        key = f"real/{known.name}/{_content(known)}"
        found = self.kept.read(key)
        if found is None:
            found = observe(known, self.engine)
            self.kept.write(key, found)
            self.tell(f"real: {known.name}")
        else:
            self.tell(f"real: {known.name}{KEPT}")
        return found


def observe(known: KnownScan, engine: Engine) -> Observed:
    """Samples of a scan, judged by its truths and let go: what is kept of a voxel is a few numbers."""
    samples = engine.estimate(known.scan)
    where = _for_maths(getattr(engine, "device", torch.device("cpu")))
    judged = judge(samples.to(where), *(truth.to(where) for truth in known.truths.values()))
    by_truth = dict(zip(known.truths, judged, strict=True))
    return Observed(known.name, known.anatomy, known.num_directions, by_truth, known.tissue)


def _key_of(split: VirtualSplit, place: tuple[str, int]) -> str:
    anatomy, position = place
    return f"{split.split}/{anatomy}@{position}"


def _content(known: KnownScan) -> str:
    """Of the input and of what it is judged by: the files behind a name may have changed."""
    content = hashlib.sha256(known.scan.key.encode())
    for truth in known.truths.values():
        content.update(truth.contiguous().numpy().tobytes())
    return content.hexdigest()


def _for_maths(device: torch.device) -> torch.device:
    """Double precision, which Apple's devices lack."""
    return torch.device("cpu") if device.type == "mps" else device
