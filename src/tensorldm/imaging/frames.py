"""Directions and tensors between the three frames, and the four ways other programs store a tensor.

image: the array's axes i, j, k, which the package works in [choice: tensor-frame]. fsl: the same with the first axis
mirrored when det(affine) > 0. scanner: the world axes of the affine. A tensor follows its axes as R D Rᵀ, so a mirror
of one axis changes the sign of two off-diagonals.
"""

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.components import CONVENTIONS, Convention, Frame
from tensorldm.dti.packing import rotate
from tensorldm.errors import DataError
from tensorldm.imaging.volume import Space


def axes_of(frame: Frame, space: Space) -> Float[ndarray, "3 3"]:
    """Takes a vector in image axes to ``frame``; orthonormal."""
    if frame == "scanner":
        return space.axes
    if frame == "fsl" and space.is_flipped:
        return np.diag([-1.0, 1.0, 1.0])
    return np.eye(3)


def between(source: Frame, target: Frame, *, space: Space) -> Float[ndarray, "3 3"]:
    """Takes a vector in ``source`` axes to ``target`` axes; orthonormal."""
    return np.asarray(axes_of(target, space) @ axes_of(source, space).T)


def directions_to_frame(
    directions: Float[ndarray, "*n 3"], space: Space, *, target: Frame, source: Frame = "image"
) -> Float[ndarray, "*n 3"]:
    """Vectors (gradient directions, eigenvectors) expressed in other axes."""
    return np.asarray(directions @ between(source, target, space=space).T.astype(directions.dtype))


def tensor_to_frame(
    packed: Float[ndarray, "*voxels 6"], space: Space, *, target: Frame, source: Frame = "image"
) -> Float[ndarray, "*voxels 6"]:
    """Tensors expressed in other axes: R D Rᵀ."""
    turn = between(source, target, space=space)
    if np.array_equal(turn, np.eye(3)):
        return packed
    values = torch.from_numpy(np.ascontiguousarray(packed))
    return np.asarray(rotate(values, torch.from_numpy(turn).to(values.dtype)).numpy())


def convention_named(name: str) -> Convention:
    """The storage convention of this name."""
    if name not in CONVENTIONS:
        raise DataError(f"There is no tensor convention '{name}'. Give one of {', '.join(CONVENTIONS)}.")
    return CONVENTIONS[name]


def encode_tensor(packed: Float[ndarray, "x y z 6"], space: Space, convention: str) -> Float[ndarray, "x y z *n"]:
    """The array that a program of this convention expects, from a tensor in image axes."""
    kind = convention_named(convention)
    stored = tensor_to_frame(packed, space, target=kind.frame)[..., list(kind.from_package)]
    return stored[..., None, :] if kind.five_dimensional else stored


def decode_tensor(array: Float[ndarray, "x y z *n"], space: Space, convention: str) -> Float[ndarray, "x y z 6"]:
    """A tensor in image axes, from an array stored in this convention."""
    kind = convention_named(convention)
    expected = (*space.shape, 1, 6) if kind.five_dimensional else (*space.shape, 6)
    if array.shape != expected:
        raise DataError(
            f"A tensor in the '{convention}' convention has shape {expected}, found {array.shape}. "
            "Give the convention that the file was written in."
        )
    packed = array.reshape(*space.shape, 6)[..., list(kind.to_package)]
    return tensor_to_frame(packed, space, source=kind.frame, target="image")
