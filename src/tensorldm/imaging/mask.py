"""The brain: the user's mask, checked against the scan's grid, or one found in the mean b=0 image.

Found: DIPY's `median_otsu`, the largest connected part, its holes filled, eroded once [choice: brain-mask].
"""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy import ndimage

from tensorldm.errors import DataError, ToolError
from tensorldm.imaging.gradient_table import GradientTable
from tensorldm.imaging.nifti import read_mask
from tensorldm.imaging.resample import to_voxel_size
from tensorldm.imaging.volume import Space, Volume
from tensorldm.shapes import MaskImage

MEDIAN_RADIUS_MM = 4.0
"""The median filter reaches at least this far: over sulci and vessels, but not from the brain to the eyes."""
MEDIAN_PASSES = 4
BRIDGE_MM = 6.0
"""Parts that hang on the brain by less than about twice this (eyes by their nerves, sinus, scalp) are cut off."""
FINE_VOXEL_MM = 1.5
"""Finer images are searched at 2 mm: the median filter's cost grows with the sixth power of resolution."""
AIR_SHARE = 0.1
NO_BRAIN = "No brain was found in the b=0 image. Check the series, or give a mask."
FACE = ndimage.generate_binary_structure(3, 1)
THICK_SHARE = 1.5
"""An axis whose voxels are this much longer than the shortest is not eroded: it would lose whole slices of brain."""


def read_brain_mask(path: Path, space: Space) -> MaskImage:
    """The user's mask for a scan on this grid."""
    mask, grid = read_mask(path)
    if not grid.same_grid(space):
        what = f"{grid.shape} voxels, the scan {space.shape}" if grid.shape != space.shape else "another affine"
        raise DataError(f"{path}: the mask has {what}. Give a mask on the scan's own grid.")
    if not mask.any():
        raise DataError(f"{path}: the mask is empty, no voxel is above 0.5. Give a mask of the brain, or none.")
    return mask


def mean_b0(volume: Volume, gradients: GradientTable) -> Volume:
    """Mean of the volumes that count as b=0."""
    if not gradients.b0_indices:
        raise DataError(
            f"No volume has a b-value near 0 (the lowest is {gradients.bvals.min():.0f} s/mm²). "
            "Add a b=0 volume to the series."
        )
    return volume.with_data(volume.data[..., list(gradients.b0_indices)].mean(axis=-1))


def find_brain(b0: Volume) -> MaskImage:
    """The brain in a b=0 image."""
    if b0.data.min() == b0.data.max():
        raise DataError(NO_BRAIN)
    try:
        from dipy.segment.mask import median_otsu  # slow to import, and not needed where a mask is given
    except ImportError as error:
        raise ToolError("Finding the brain needs DIPY, which is not installed here. Give a mask.") from error
    side = float(np.cbrt(np.prod(b0.space.voxel_size)))
    if side < FINE_VOXEL_MM:
        coarse = to_voxel_size(b0.space)
        return coarse.inverse_mask(find_brain(Volume(coarse.forward(b0.data), coarse.target)))
    radius = int(np.ceil(MEDIAN_RADIUS_MM / side - 0.1))  # sides of 1.999 and 2.001 mm are the same
    head = _head(b0.data, margin=2 * radius)
    found = np.zeros(b0.data.shape, dtype=bool)
    found[head] = median_otsu(b0.data[head], median_radius=radius, numpass=MEDIAN_PASSES)[1]
    brain = _filled(_without_bridges(found, b0.space), b0.space)
    mask = ndimage.binary_erosion(brain, _cross(b0.space), border_value=1)
    if not mask.any():
        raise DataError(NO_BRAIN)
    return np.asarray(mask)


def _largest(mask: MaskImage) -> MaskImage:
    parts, count = ndimage.label(mask, FACE)
    if count == 0:
        return mask
    return np.asarray(parts == 1 + np.bincount(parts.ravel())[1:].argmax())


def _head(b0: Float[ndarray, "x y z"], *, margin: int) -> tuple[slice, slice, slice]:
    """Box around the bright part: spares the filter the air, and frees Otsu's threshold from how much there is."""
    bright = b0 > AIR_SHARE * np.percentile(b0, 98)
    spans = []
    for axis in range(3):
        others = tuple(other for other in range(3) if other != axis)
        inside = np.flatnonzero(bright.any(axis=others)) if bright.any() else np.arange(b0.shape[axis])
        spans.append(slice(max(int(inside[0]) - margin, 0), int(inside[-1]) + margin + 1))
    return spans[0], spans[1], spans[2]


def _filled(mask: MaskImage, space: Space) -> MaskImage:
    """Without holes, also those that a slab's first or last slice opens: each axial slice is filled too."""
    axial = int(np.abs(space.axes[2]).argmax())
    closed = np.asarray(ndimage.binary_fill_holes(mask, FACE))
    slices = [np.asarray(ndimage.binary_fill_holes(part)) for part in np.moveaxis(closed, axial, 0)]
    return np.moveaxis(np.stack(slices), 0, axial)


def _without_bridges(mask: MaskImage, space: Space) -> MaskImage:
    """The largest part that still hangs together once thin bridges are worn away, grown back to its own surface."""
    cross, depth = _cross(space), max(1, round(BRIDGE_MM / min(space.voxel_size)))
    core = ndimage.binary_erosion(mask, cross, iterations=depth, border_value=1)
    if not core.any():
        return _largest(mask)
    # One voxel more than was worn away: erosion rounds corners that belong to the brain.
    return np.asarray(ndimage.binary_dilation(_largest(core), cross, iterations=depth + 1, mask=mask))


def _cross(space: Space) -> MaskImage:
    """The neighbours over which a surface is worn away: not those along thick slices, or whole slices would go.

    It is used with ``border_value=1``: brain cut by the edge of the field of view is no surface.
    """
    cross = FACE.copy()
    for axis, side in enumerate(space.voxel_size):
        if side > THICK_SHARE * min(space.voxel_size):
            ends: list[slice] = [slice(1, 2)] * 3
            ends[axis] = slice(None, None, 2)
            cross[tuple(ends)] = False
    return cross
