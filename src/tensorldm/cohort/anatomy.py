"""A virtual head before it is scanned: what both sources of anatomy (procedural, templates) give.

Axes: k compartment, d tensor component (6), x y z space (RAS). Tensors are mm²/s in image axes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.shapes import Components

TISSUES = ("csf", "grey", "white")


@dataclass(frozen=True)
class Bundle:
    """A named white-matter bundle: where it runs and in which direction."""

    mask: Bool[Tensor, "x y z"]
    directions: Float[Tensor, "3 x y z"]
    """Unit vectors along the bundle inside the mask, zero outside; the sign carries no meaning."""


@dataclass(frozen=True)
class Anatomy:
    """Compartments per voxel on one RAS grid; the signal is S0 Σ_k f_k exp(-b gᵀ D_k g)."""

    name: str
    source: str
    """The independent anatomy it stems from; splits are made by it, before any warp."""
    tensors: Float[Tensor, "k 6 x y z"]
    fractions: Float[Tensor, "k x y z"]
    """Signal fractions; they sum to 1 inside the mask and are 0 outside."""
    s0: Float[Tensor, "x y z"]
    """b=0 signal relative to white matter (1)."""
    tissue: Float[Tensor, "3 x y z"]
    """Volume fractions of csf, grey, white."""
    mask: Bool[Tensor, "x y z"]
    voxel_size: tuple[float, float, float]
    bundles: Mapping[str, Bundle] = field(default_factory=dict)

    @property
    def components(self) -> Components:
        """The mean tensor Σ_k f_k D_k: what a fit at vanishing b would give. Batch axis of 1."""
        return (self.tensors * self.fractions[:, None]).sum(dim=0)[None]


@runtime_checkable
class AnatomySource(Protocol):
    """A set of independent anatomies, each known by name."""

    @property
    def names(self) -> Sequence[str]:
        """Every anatomy of this source."""
        ...

    def load(self, name: str, *, device: torch.device | str = "cpu") -> Anatomy:
        """One anatomy, the same each time."""
        ...
