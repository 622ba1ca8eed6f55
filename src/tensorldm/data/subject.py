"""A prepared subject: the sparse input and the reference tensor on one RAS grid, and a record of how it was made.

Axes: c DWI volume (b0 x y z), d tensor component (6), x y z space (RAS). Outside the mask everything is zero.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.batch import Batch, mask_centre
from tensorldm.config.reading import Strict
from tensorldm.shapes import Affine
from tensorldm.work.sources import SourceFile

GradientCheck = Literal["verified", "suspect", "untestable", "skipped"]


class Record(Strict):
    """Where a prepared subject comes from, what was chosen and measured, and what its user should know."""

    name: str
    person: str
    sources: tuple[SourceFile, ...]
    inputs_sha256: str
    """Hash of the sources' contents and of every setting: the same hash means there is nothing to do again."""
    native_shape: tuple[int, int, int]
    native_voxel_size_mm: tuple[float, float, float]
    shell: float
    """Mean b-value of the chosen shell, s/mm²."""
    volumes: tuple[int, ...]
    """Index in the series of each input volume: b0, x, y, z; for a mean b=0 the first of them."""
    angles_degrees: tuple[float, ...]
    """Angle of each chosen direction to its image axis."""
    num_b0: int
    num_directions: int
    """Volumes that the reference tensor was fitted to."""
    fit: str
    gradient_nonlinearity: bool
    gradient_check: GradientCheck
    b0_scale: float
    """What the volumes were divided by, in the scanner's units."""
    mask_voxels: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Subject:
    """A prepared subject in memory."""

    record: Record
    dwi: Float[Tensor, "c x y z"]
    """Divided by the one robust b=0 scale."""
    bvals: Float[Tensor, " c"]
    directions: Float[Tensor, "c 3"]
    """In image axes; zero for b=0."""
    components: Float[Tensor, "6 x y z"]
    """mm²/s, in image axes."""
    mask: Bool[Tensor, "x y z"]
    affine: Affine

    @property
    def voxel_size(self) -> tuple[float, float, float]:
        """Sides of a voxel in mm."""
        x, y, z = (sqrt(sum(float(v) ** 2 for v in self.affine[:3, axis])) for axis in range(3))
        return x, y, z

    def as_batch(self, centre: Float[Tensor, "1 3"] | None = None) -> Batch:
        """This subject alone, as a network reads it; ``centre`` is the brain's, where this is a part of it."""
        components = self.components[None].float()
        return Batch(
            dwi=self.dwi[None].float(),
            bvals=self.bvals[None].float(),
            directions=self.directions[None].float(),
            components=components,
            clean=components,
            mask=self.mask[None],
            voxel_size=torch.tensor([self.voxel_size]),
            centre=mask_centre(self.mask[None]) if centre is None else centre,
            subjects=(self.record.name,),
        )
