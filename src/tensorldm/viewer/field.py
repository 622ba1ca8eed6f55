"""A tensor image in memory, as the page needs it: tensors inside the brain in scanner axes, and its grid in RAS order.

RAS order because the browser's textures are: directions can then be drawn voxel by voxel without another turn.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from tensorldm.errors import DataError
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.mask import read_brain_mask
from tensorldm.imaging.nifti import read_volume
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.tensor_files import read_provenance, read_tensor
from tensorldm.imaging.volume import Space, Volume
from tensorldm.shapes import Image, MaskImage
from tensorldm.viewer.scene import Shown


@dataclass(frozen=True, eq=False)
class Field:
    """The tensors of one reconstruction, its voxels in RAS order."""

    shown: Shown
    space: Space
    """Voxel axes point most nearly right, front and up; obliquity stays in the affine."""
    mask: MaskImage
    inside: Float[Tensor, "v 6"]
    """Of the mask's voxels: scanner axes, mm²/s, double precision."""

    def scatter(self, values: Float[Tensor, "v *n"]) -> Float[ndarray, "x y z *n"]:
        """Values of the mask's voxels on the grid, zero elsewhere."""
        image = np.zeros((*self.space.shape, *values.shape[1:]), dtype=np.float32)
        image[self.mask] = values.float().numpy()
        return image

    def voxel_at(self, world: tuple[float, float, float]) -> tuple[int, int, int] | None:
        """The voxel that holds a point of the world (mm); None outside the grid."""
        i, j, k = np.rint(np.linalg.solve(self.space.affine, np.array([*world, 1.0]))[:3]).astype(int)
        index = int(i), int(j), int(k)
        return index if all(0 <= n < size for n, size in zip(index, self.space.shape, strict=True)) else None

    def tensor_at(self, voxel: tuple[int, int, int]) -> Float[Tensor, " 6"] | None:
        """The tensor of a voxel; None outside the brain."""
        if not self.mask[voxel]:
            return None
        # Rows of ``inside`` follow the mask in C order.
        row = int(np.count_nonzero(self.mask[: voxel[0]])) + int(np.count_nonzero(self.mask[voxel[0], : voxel[1]]))
        return self.inside[row + int(np.count_nonzero(self.mask[voxel[0], voxel[1], : voxel[2]]))]


def load_field(shown: Shown) -> Field:
    """Read a tensor image and its mask."""
    volume = read_tensor(shown.tensor, convention=shown.convention)
    mask = _mask(shown, volume)
    ras = to_ras(volume.space)
    packed = ras.forward(volume.data)
    brain = ras.forward_mask(mask)
    # Components refer to the stored axes still; re-ordering voxels does not turn them.
    inside = tensor_to_frame(packed[brain].astype(np.float64), volume.space, target="scanner")
    return Field(shown, ras.target, brain, torch.from_numpy(np.ascontiguousarray(inside)))


def load_map(field: Field, name: str) -> Image | None:
    """A scalar map that was written beside the tensor, in the field's order; None where there is none."""
    path = field.shown.naming.image(name)
    if not path.is_file():
        return None
    volume = read_volume(path)
    if volume.data.ndim != 3:
        raise DataError(f"{path}: an array of shape {volume.data.shape}, expected a map. Reconstruct the scan again.")
    ras = to_ras(volume.space)
    if not ras.target.same_grid(field.space):
        raise DataError(
            f"{path}: its grid {volume.space.shape} is not that of {field.shown.tensor}, or lies elsewhere in the "
            "world. Reconstruct the scan again."
        )
    return np.asarray(np.nan_to_num(ras.forward(volume.data)), dtype=np.float32)


def _mask(shown: Shown, volume: Volume) -> MaskImage:
    """The mask that the sidecar names or that stands beside the tensor; else where there is a tensor at all."""
    finite = np.isfinite(volume.data).all(axis=-1)
    for path in (read_provenance(shown.tensor).mask, shown.naming.image("mask")):
        if path is not None and path.is_file():
            return np.asarray(read_brain_mask(path, volume.space) & finite)
    found = finite & (np.nan_to_num(volume.data) != 0).any(axis=-1)
    if not found.any():
        raise DataError(f"{shown.tensor}: every tensor in it is zero or not a number. Reconstruct the scan again.")
    return np.asarray(found)
