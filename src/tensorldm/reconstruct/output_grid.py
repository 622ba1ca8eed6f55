"""From the working grid to the one that is written: the scan's own, or the whole 2 mm grid."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.grid import Grid
from tensorldm.imaging.volume import MovedMask, Space, Volume
from tensorldm.reconstruct.engine import WorkingScan
from tensorldm.reconstruct.plan import Plan
from tensorldm.shapes import Image, MaskImage


@dataclass(frozen=True, eq=False)
class WayOut:
    """Where results go, and the used volumes as they are there."""

    back: Grid
    """Its native end is the output; its working end the cropped working grid."""
    inside: MovedMask
    """The mask on the working grid."""
    mask: MaskImage
    """The mask on the output grid."""
    signal: Volume
    gradients: GradientTable
    """Of the used volumes, in the output's image axes."""

    @property
    def space(self) -> Space:
        """The output grid."""
        return self.back.native

    @property
    def s0(self) -> Image:
        """Mean of the used b=0 volumes."""
        return np.asarray(self.signal.data[..., list(self.gradients.b0_indices)].mean(axis=-1))

    def tensor(self, packed: Float[Tensor, "v 6"]) -> Float[ndarray, "x y z 6"]:
        """Tensors in the output's image axes: through the log domain where voxels change."""
        return self.back.inverse_tensor(self._field(packed), self.inside, within=self.mask).data.astype(np.float32)

    def map(self, values: Float[Tensor, " v"]) -> Image:
        """A scalar map, from inside the mask only; where tensors take the nearest one, maps do too."""
        moved = self.back.inverse(self._field(values), self.inside).data
        unreached, nearest = self._unreached
        moved[unreached] = moved[nearest]
        return np.where(self.mask, moved, 0).astype(np.float32)

    @cached_property
    def _unreached(self) -> tuple[MaskImage, tuple[ndarray, ...]]:
        """Voxels of the mask that no working voxel is near enough to tell of, and for each the nearest other one.

        Left at zero, they would say that a direction is certain and that FA lies between 0 and 0.
        """
        whole = Volume(self.inside.astype(np.float64), self.back.working)
        reached = self.mask & (self.back.inverse(whole, self.inside).data > 0.5)
        unreached = self.mask & ~reached
        if not unreached.any() or not reached.any():
            return np.zeros_like(self.mask), (np.zeros(0, dtype=np.intp),) * 3
        nearest = distance_transform_edt(
            ~reached, sampling=self.space.voxel_size, return_distances=False, return_indices=True
        )
        return unreached, tuple(axis[unreached] for axis in nearest)

    def _field(self, values: Float[Tensor, "v *n"]) -> Volume:
        image = np.zeros((*self.inside.shape, *values.shape[1:]), dtype=np.float64)
        image[self.inside] = values.double().numpy()
        return Volume(image, self.back.working)


def way_out(output: str, plan: Plan, *, grid: Grid, scan: WorkingScan, used: Volume, mask: MaskImage) -> WayOut:
    """The way back to the native grid, or only out of the box around the brain."""
    inside = scan.mask.numpy()
    if output == "native":
        return WayOut(grid, inside, mask, used, plan.gradients.select(plan.used))
    box = grid.steps[-1]
    back = Grid(box.source, (box,))
    signal = back.inverse(Volume(np.moveaxis(scan.dwi.numpy(), 0, -1), box.target), inside)
    return WayOut(back, inside, back.inverse_mask(inside), signal, plan.used_gradients)
