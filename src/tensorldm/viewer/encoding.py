"""Maps as NIfTI bytes for the browser: numbers, colours, and directions packed into colours for the line shader."""

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from nibabel import Nifti1Image
from numpy import ndarray

from tensorldm.dti.maps import colour_fa, fractional_anisotropy, principal_direction
from tensorldm.imaging.volume import Space
from tensorldm.shapes import Image
from tensorldm.viewer.field import Field

RGB = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")])
RGBA = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1"), ("A", "u1")])
OPAQUE = 248
"""Alpha of a voxel with a line; its three lowest bits are set where x, y, z of the direction are positive."""
LEAST_LINE_FA = 0.1
"""Below, a direction is noise and no line is drawn."""


def encode_scalars(image: Image, space: Space) -> bytes:
    """A map as float32."""
    return _bytes(image.astype(np.float32), space)


def encode_colours(field: Field) -> bytes:
    """Colour FA: FA·|v1| in scanner axes, red left-right."""
    levels = _levels(field.scatter(colour_fa(field.inside)))
    return _bytes(np.ascontiguousarray(levels).view(RGB)[..., 0], field.space)


def encode_lines(field: Field) -> bytes:
    """FA·v1 in scanner axes: magnitudes as red, green and blue, signs in the lowest bits of alpha.

    Eight bits of FA·|v1| keep a direction to better than 2° from FA 0.1 on, and the colours are those of the axes.
    """
    fa, v1 = fractional_anisotropy(field.inside), principal_direction(field.inside)
    arrow = field.scatter(fa[:, None] * v1)
    signs = (arrow > 0).astype(np.uint8) @ np.array([1, 2, 4], dtype=np.uint8)
    strong = field.scatter(fa) >= LEAST_LINE_FA
    alpha = np.where(strong, OPAQUE + signs, 0).astype(np.uint8)
    packed = np.concatenate([_levels(np.abs(arrow)), alpha[..., None]], axis=-1)
    return _bytes(np.ascontiguousarray(packed).view(RGBA)[..., 0], field.space)


def world_to_voxel(space: Space) -> Float[ndarray, "3 3"]:
    """Takes a direction of the world to voxel units, in which the shader draws."""
    return np.asarray(np.linalg.inv(space.affine[:3, :3]), dtype=np.float64)


def _levels(values: Float[ndarray, "x y z 3"]) -> UInt8[ndarray, "x y z 3"]:
    return np.asarray(np.rint(np.clip(values, 0, 1) * 255), dtype=np.uint8)


def _bytes(array: Shaped[ndarray, "x y z"], space: Space) -> bytes:
    image = Nifti1Image(array, space.affine)
    image.set_sform(space.affine, code=1)
    image.set_qform(space.affine, code=1)
    return bytes(image.to_bytes())
