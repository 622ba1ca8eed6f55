"""The contract of every method, ours and its rivals: a scan in, a tensor on the same grid out."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from numpy import ndarray

from tensorldm.baselines.scan import Scan


@dataclass(frozen=True, eq=False)
class Estimate:
    """A tensor field, and which volumes of the series it was made from."""

    packed: Float[ndarray, "x y z 6"]
    """Image axes, mm²/s; zero outside the mask."""
    volumes: tuple[int, ...]
    """Indices from 0: whoever reads the file can see what the method was allowed to see."""


@runtime_checkable
class Method(Protocol):
    """Anything that makes a tensor from a scan."""

    @property
    def name(self) -> str:
        """What tables and files call it."""
        ...

    @property
    def description(self) -> str:
        """What it does, in a sentence."""
        ...

    def reconstruct(self, scan: Scan) -> Estimate:
        """The tensor on the scan's own grid; a ``DataError`` where the scan does not have what is needed."""
        ...
