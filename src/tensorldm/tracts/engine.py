"""The contract of what grows streamlines: MRtrix3, or DIPY for whoever has only pip."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.errors import ConfigError
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage
from tensorldm.tracts.seeds import SeedChunk
from tensorldm.tracts.settings import TrackSettings
from tensorldm.tracts.streamlines import Streamlines

ENGINES = ("auto", "mrtrix", "dipy")


@dataclass(frozen=True, eq=False)
class TensorField:
    """A tensor image and the mask in which streamlines start and live."""

    packed: Float[ndarray, "x y z 6"]
    """Image axes, mm²/s."""
    mask: MaskImage
    space: Space

    def cropped(self) -> "TensorField":
        """The same in the smallest box around the mask, with a voxel of nothing around it to interpolate into."""
        at = np.argwhere(np.pad(self.mask, 1))
        low, high = at.min(axis=0) - 1, at.max(axis=0) + 2
        box = tuple(slice(int(start), int(stop)) for start, stop in zip(low, high, strict=True))
        shift = np.eye(4)
        shift[:3, 3] = low - 1
        mask = np.pad(self.mask, 1)[box]
        packed = np.pad(self.packed, [(1, 1)] * 3 + [(0, 0)])[box]
        return TensorField(np.where(mask[..., None], packed, 0), mask, self.space.moved(mask.shape, shift))


Track = Callable[[SeedChunk], Streamlines]
"""Grow the streamlines of one chunk; called from several threads at once."""


@runtime_checkable
class Engine(Protocol):
    """Something that grows streamlines from seeds, the same ones every time."""

    @property
    def name(self) -> str:
        """mrtrix or dipy."""
        ...

    @property
    def version(self) -> str:
        """Of the program or package."""
        ...

    def describe(self, space: Space, settings: TrackSettings) -> str:
        """The command of every chunk, as a person would type it."""
        ...

    def prepare(self, field: TensorField, settings: TrackSettings, *, scratch: Path) -> Track:
        """Turn the tensors into orientations once, for all chunks; ``scratch`` is removed afterwards."""
        ...

    def stop(self) -> None:
        """End what runs now, as soon as can be."""
        ...


def open_engine(name: str = "auto") -> Engine:
    """The engine of this name; ``auto`` is MRtrix3 where it is installed, else DIPY."""
    from tensorldm.tracts.dipy_engine import DipyEngine
    from tensorldm.tracts.mrtrix import find_mrtrix, need_mrtrix
    from tensorldm.tracts.mrtrix_engine import MrtrixEngine

    if name not in ENGINES:
        raise ConfigError(f"There is no tracking engine '{name}'. Give one of {', '.join(ENGINES)}.")
    if name == "dipy":
        return DipyEngine()
    found = need_mrtrix() if name == "mrtrix" else find_mrtrix()
    return DipyEngine() if found is None else MrtrixEngine(found)
