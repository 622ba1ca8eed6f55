"""The grid a model works on, and the exact way there and back: re-orientation, voxel size, box.

Working grid: RAS by the nearest flips and permutation, 2 mm isotropic, obliquity kept in the affine [choice: grid].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.imaging.box import around, to_multiple, to_shape
from tensorldm.imaging.grad_dev import turned_deviations
from tensorldm.imaging.gradient_table import GradientTable
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.resample import WORKING_VOXEL_MM, to_voxel_size
from tensorldm.imaging.volume import MovedMask, Space, Volume
from tensorldm.shapes import MaskImage


@runtime_checkable
class Step(Protocol):
    """One change of grid and its inverse."""

    @property
    def source(self) -> Space:
        """The grid before."""
        ...

    @property
    def target(self) -> Space:
        """The grid after."""
        ...

    @property
    def turn(self) -> Float[ndarray, "3 3"]:
        """Takes a vector in the source's image axes to the target's."""
        ...

    def forward(self, data: Float[ndarray, "x y z *n"]) -> Float[ndarray, "u v w *n"]:
        """Signals to the target."""
        ...

    def inverse(self, data: Float[ndarray, "u v w *n"], mask: MovedMask) -> Float[ndarray, "x y z *n"]:
        """Maps to the source, from inside a mask on the target."""
        ...

    def forward_mask(self, mask: MaskImage) -> MovedMask:
        """A mask to the target."""
        ...

    def inverse_mask(self, mask: MovedMask) -> MaskImage:
        """A mask to the source."""
        ...

    def inverse_tensor(
        self, packed: Float[ndarray, "u v w 6"], mask: MovedMask, *, within: MaskImage
    ) -> Float[ndarray, "x y z 6"]:
        """Tensors to the source and its image axes, from inside ``mask`` to inside ``within``."""
        ...


@dataclass(frozen=True, eq=False)
class Grid:
    """A native grid, a working grid, and the steps between them."""

    native: Space
    steps: tuple[Step, ...] = ()

    @property
    def working(self) -> Space:
        """Where the steps end."""
        return self.steps[-1].target if self.steps else self.native

    @property
    def turn(self) -> Float[ndarray, "3 3"]:
        """Takes a vector in native image axes to working image axes: a signed permutation."""
        matrix = np.eye(3)
        for step in self.steps:
            matrix = step.turn @ matrix
        return matrix

    def then(self, step: Step) -> "Grid":
        """This grid and one step more."""
        assert step.source.shape == self.working.shape, "a step starts where the last one ended"
        return Grid(self.native, (*self.steps, step))

    def cropped(self, mask: MaskImage, *, margin: int = 2) -> "Grid":
        """Further cropped to the bounding box of a mask on the working grid."""
        return self.then(around(self.working, mask, margin=margin))

    def padded(self, multiple: int) -> "Grid":
        """Further padded so that every side is a multiple."""
        return self.then(to_multiple(self.working, multiple))

    def boxed(self, shape: Sequence[int]) -> "Grid":
        """Further padded or cropped to a shape."""
        return self.then(to_shape(self.working, shape))

    def forward(self, volume: Volume) -> Volume:
        """Signals from the native to the working grid."""
        data = volume.data
        for step in self.steps:
            data = step.forward(data)
        return Volume(data, self.working)

    def forward_mask(self, mask: MaskImage) -> MovedMask:
        """A mask from the native to the working grid."""
        for step in self.steps:
            mask = step.forward_mask(mask)
        return mask

    def forward_gradients(self, gradients: GradientTable) -> GradientTable:
        """The gradient table in the working grid's image axes."""
        return gradients.turned(self.turn)

    def forward_grad_dev(self, field: Volume) -> Volume:
        """The gradient-nonlinearity field on the working grid and in its image axes."""
        moved = self.forward(field)
        return moved.with_data(turned_deviations(moved.data, self.turn))

    def inverse(self, volume: Volume, mask: MovedMask) -> Volume:
        """Scalar maps from the working to the native grid, from inside a mask on the working grid."""
        data = volume.data
        for step in reversed(self.steps):
            data = step.inverse(data, mask)
            mask = step.inverse_mask(mask)
        return Volume(data, self.native)

    def inverse_mask(self, mask: MovedMask) -> MaskImage:
        """A mask from the working to the native grid."""
        for step in reversed(self.steps):
            mask = step.inverse_mask(mask)
        return mask

    def inverse_tensor(self, volume: Volume, mask: MovedMask, *, within: MaskImage | None = None) -> Volume:
        """Tensors from the working to the native grid and its image axes; zero outside ``within``.

        ``mask`` is on the working grid, ``within`` on the native one; without it, ``mask`` brought there.
        """
        packed = np.where(mask[..., None], volume.data, np.zeros((), volume.data.dtype))
        native = self.inverse_mask(mask) if within is None else within
        for index in range(len(self.steps) - 1, -1, -1):
            step, before = self.steps[index], Grid(self.native, self.steps[:index])
            packed = step.inverse_tensor(packed, mask, within=before.forward_mask(native))
            mask = step.inverse_mask(mask)
        return Volume(np.where(native[..., None], packed, np.zeros((), packed.dtype)), self.native)


def working_grid(space: Space, *, voxel_mm: float = WORKING_VOXEL_MM) -> Grid:
    """RAS, then isotropic voxels where any side is off by more than 2 %."""
    ras = to_ras(space)
    resampling = to_voxel_size(ras.target, voxel_mm)
    grid = Grid(space, (ras,))
    return grid if resampling.target.same_grid(ras.target) else grid.then(resampling)
