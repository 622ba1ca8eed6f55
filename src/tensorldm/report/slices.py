"""Where a brain is cut for the eye: rows of slices in three planes, in the world's orientation whatever the array's.

Sagittal slices look with the front to the right; in coronal and axial ones the subject's right is on the right.
Axes: x y z of the stored array; h w of a picture, top row first.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.imaging.reorient import Reorientation, to_ras
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage

PLANES: Final = ("axial", "coronal", "sagittal")
NORMAL: Final = {"sagittal": 0, "coronal": 1, "axial": 2}
"""The world axis that a plane's slices follow one another along: x, y, z."""
SIDES: Final = {"sagittal": ("back", "front"), "coronal": ("left", "right"), "axial": ("left", "right")}
"""What is at the left and right edge of a slice."""
OUTERMOST: Final = 0.04
"""Share of the brain that lies beyond the outermost slices, at each end: there is little to see."""
MARGIN_VOXELS: Final = 1


@dataclass(frozen=True, eq=False)
class Cuts:
    """The slices of one grid that are shown, and the box around the brain that they are cropped to."""

    ras: Reorientation
    box: tuple[slice, slice, slice]
    """Of the RAS array."""
    places: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    """Indices of the slices across x, y and z of the RAS array."""

    def row(self, image: Float[ndarray, "x y z *rgb"], plane: str) -> Float[ndarray, "h w *rgb"]:
        """The plane's slices beside each other."""
        turned = self.ras.forward(image)
        return np.ascontiguousarray(np.concatenate([self._slice(turned, plane, at) for at in self.places_of(plane)], 1))

    def places_of(self, plane: str) -> tuple[int, ...]:
        """Indices of the plane's slices in the RAS array."""
        return self.places[NORMAL[plane]]

    def millimetres(self, plane: str) -> tuple[float, ...]:
        """Where the plane's slices lie in the world, at the box's middle: x, y or z in mm."""
        axis = NORMAL[plane]
        middle = np.array([(side.start + side.stop - 1) / 2 for side in self.box])
        found = []
        for place in self.places_of(plane):
            middle[axis] = place
            found.append(float((self.ras.target.affine @ [*middle, 1.0])[axis]))
        return tuple(found)

    def size_mm(self, plane: str) -> tuple[float, float]:
        """Width and height of the plane's row: voxels need not be cubes, and pictures are stretched to this."""
        across, up = _axes(plane)
        width, height = ((self.box[a].stop - self.box[a].start) * self.ras.target.voxel_size[a] for a in (across, up))
        return width * len(self.places_of(plane)), height

    def _slice(self, turned: Float[ndarray, "x y z *rgb"], plane: str, place: int) -> Float[ndarray, "h w *rgb"]:
        cut: list[int | slice] = [*self.box]
        cut[NORMAL[plane]] = place
        return np.swapaxes(turned[tuple(cut)], 0, 1)[::-1]


def choose_cuts(space: Space, mask: MaskImage, *, count: int) -> Cuts:
    """Evenly spaced slices through the brain: ``count`` axial ones, and of each other plane as many as fill its row."""
    ras = to_ras(space)
    where = np.nonzero(ras.forward_mask(mask))
    one = Cuts(ras, box_around(where, ras.target.shape), ((0,), (0,), (0,)))
    wide = one.size_mm("axial")[0]
    counts = {NORMAL[plane]: max(1, round(count * wide / one.size_mm(plane)[0])) for plane in PLANES}
    x, y, z = (_spaced(where[axis], counts[axis]) for axis in range(3))
    return Cuts(ras, one.box, (x, y, z))


def cuts_at(space: Space, mask: MaskImage, *, point: tuple[int, int, int]) -> Cuts:
    """One slice per plane, through a voxel of the RAS array."""
    ras = to_ras(space)
    x, y, z = point
    return Cuts(ras, box_around(np.nonzero(ras.forward_mask(mask)), ras.target.shape), ((x,), (y,), (z,)))


def box_around(where: tuple[ndarray, ...], shape: tuple[int, int, int]) -> tuple[slice, slice, slice]:
    """The smallest box around these voxels, with a margin where the grid has one."""
    x, y, z = (
        slice(max(int(at.min()) - MARGIN_VOXELS, 0), min(int(at.max()) + 1 + MARGIN_VOXELS, side))
        for at, side in zip(where, shape, strict=True)
    )
    return x, y, z


def _spaced(at: ndarray, count: int) -> tuple[int, ...]:
    if count == 1:
        return (int(np.median(at)),)
    low, high = np.quantile(at, [OUTERMOST, 1 - OUTERMOST])
    return tuple(int(place) for place in np.round(np.linspace(low, high, count)))


def _axes(plane: str) -> tuple[int, int]:
    across, up = (axis for axis in range(3) if axis != NORMAL[plane])
    return across, up
