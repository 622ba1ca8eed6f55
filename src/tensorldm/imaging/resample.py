"""Voxels of another size over the same field of view: signals there, maps and tensors back.

Signals (DWIs) are resampled, tensors are fitted afterwards: interpolated components would mix directions and
shrink anisotropy. Tensors come back through the log domain, where the mean of positive tensors is positive and
keeps their determinant; weights are normalised over the mask, so that nothing from outside it bleeds in.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.ndimage import distance_transform_edt

from tensorldm.dti.logarithm import exp, log
from tensorldm.imaging.kernels import Kernel, Operator, apply_weights, blur_weights, cubic_weights, linear_weights
from tensorldm.imaging.volume import MovedMask, Space
from tensorldm.shapes import MaskImage

WORKING_VOXEL_MM = 2.0
SAME_SIZE_SHARE = 0.02
"""Sides this close to the wanted one are left as they are: interpolation would cost more than it gives."""
LEAST_WEIGHT = 1e-3
UNDERSHOOT_SHARE = 0.5
"""A magnitude that cubic weights put below this share of the linear one is ringing, and its logarithm would tell."""


@dataclass(frozen=True, eq=False)
class Resampling:
    """From a grid to one of other voxel sizes with the same axes and the same centre."""

    source: Space
    target: Space

    @property
    def turn(self) -> Float[ndarray, "3 3"]:
        """The axes stay."""
        return np.eye(3)

    def forward(self, data: Float[ndarray, "x y z *n"]) -> Float[ndarray, "u v w *n"]:
        """Signals on the target: blurred along axes that lose samples, then cubic.

        Cubic, because linear weights blur and damp the noise by an amount that changes from voxel to voxel: FA comes
        back from a round trip with about twice the error. Where cubic undershoots beside a bright edge, linear.
        """
        series = data.reshape(*data.shape[:3], -1)
        images = [self._signal(series[..., index]) for index in range(series.shape[-1])]
        return np.stack(images, axis=-1).reshape(*self.target.shape, *data.shape[3:])

    def _signal(self, image: Float[ndarray, "x y z"]) -> Float[ndarray, "u v w"]:
        cubic = apply_weights(image, self._there(cubic_weights))
        if image.min() < 0:
            return cubic
        linear = apply_weights(image, self._there(linear_weights))
        return np.asarray(np.where(cubic < UNDERSHOOT_SHARE * linear, linear, cubic))

    def inverse(self, data: Float[ndarray, "u v w *n"], mask: MovedMask) -> Float[ndarray, "x y z *n"]:
        """Maps on the source: linear, from voxels inside the mask only; zero where none is in reach."""
        inside = mask.reshape(*mask.shape, *(1,) * (data.ndim - 3))
        weight = apply_weights(mask.astype(data.dtype), self._back(linear_weights)).reshape(
            *self.source.shape, *inside.shape[3:]
        )
        summed = apply_weights(np.where(inside, data, 0), self._back(linear_weights))
        result = np.where(weight > LEAST_WEIGHT, summed / np.maximum(weight, LEAST_WEIGHT), 0)
        return np.asarray(result, dtype=data.dtype)

    def forward_mask(self, mask: MaskImage) -> MovedMask:
        """A mask on the target: where linear interpolation gives at least half."""
        return np.asarray(apply_weights(mask.astype(np.float32), self._there(linear_weights)) >= 0.5)

    def inverse_mask(self, mask: MovedMask) -> MaskImage:
        """A mask on the source: where linear interpolation gives at least half."""
        return np.asarray(apply_weights(mask.astype(np.float32), self._back(linear_weights)) >= 0.5)

    def inverse_tensor(
        self, packed: Float[ndarray, "u v w 6"], mask: MovedMask, *, within: MaskImage
    ) -> Float[ndarray, "x y z 6"]:
        """Tensors on the source, in its mask ``within``, from those inside ``mask``; zero elsewhere.

        Cubic where every tensor in reach is inside the mask: weights below zero do no harm in the log domain, the
        exponential is positive whatever they give. Linear and normalised over the mask at its rim. A voxel of
        ``within`` that no masked tensor reaches, where two masks round differently, takes the nearest one.
        """
        logarithms = np.zeros_like(packed)
        logarithms[mask] = log(torch.from_numpy(packed[mask])).numpy()
        weight = apply_weights(mask.astype(packed.dtype), self._back(linear_weights))
        rim = apply_weights(logarithms, self._back(linear_weights)) / np.maximum(weight, LEAST_WEIGHT)[..., None]
        deep = self._reached_only_from(mask)
        mean = np.where(deep[..., None], apply_weights(logarithms, self._back(cubic_weights)), rim)
        reached = weight > LEAST_WEIGHT
        result = np.zeros(mean.shape, dtype=mean.dtype)
        result[reached & within] = exp(torch.from_numpy(mean[reached & within])).numpy()
        _take_nearest(result, known=reached & within, wanted=within & ~reached, voxel_size=self.source.voxel_size)
        return result

    def _reached_only_from(self, mask: MovedMask) -> MaskImage:
        """Source voxels whose cubic weights all fall inside a mask on the target."""
        x, y, z = ((np.abs(axis) > LEAST_WEIGHT).astype(np.float64) for axis in self._back(cubic_weights))
        return np.asarray(apply_weights((~mask).astype(np.float32), (x, y, z)) < 0.5)

    def _there(self, kernel: Kernel) -> Operator:
        x, y, z = (
            kernel(positions, num) @ blur_weights(num, old_mm=old, new_mm=new)
            for positions, num, old, new in self._axes()
        )
        return x, y, z

    def _back(self, kernel: Kernel) -> Operator:
        # No blur: a grid made finer than its source holds no detail that the source's would alias.
        x, y, z = (kernel(positions, num) for positions, num, _, _ in Resampling(self.target, self.source)._axes())
        return x, y, z

    def _axes(self) -> list[tuple[Float[ndarray, " n"], int, float, float]]:
        """Per axis: the target's voxels in source indices, the source's length, and both voxel sizes."""
        to_source = np.linalg.inv(self.source.affine) @ self.target.affine
        return [
            (
                to_source[axis, axis] * np.arange(self.target.shape[axis]) + to_source[axis, 3],
                self.source.shape[axis],
                self.source.voxel_size[axis],
                self.target.voxel_size[axis],
            )
            for axis in range(3)
        ]


def to_voxel_size(space: Space, voxel_mm: float = WORKING_VOXEL_MM) -> Resampling:
    """Isotropic voxels over at least the same field of view, centred on it; sides within 2 % stay as they are."""
    old = np.array(space.voxel_size)
    new = np.where(np.abs(old / voxel_mm - 1) <= SAME_SIZE_SHARE, old, voxel_mm)
    ratio = new / old
    # A hundredth of a voxel is rounding of the header, not field of view.
    shape = np.maximum(np.ceil(np.array(space.shape) / ratio - 0.01), 1)
    to_source = np.diag([*ratio, 1.0])
    to_source[:3, 3] = ((np.array(space.shape) - 1) - ratio * (shape - 1)) / 2
    return Resampling(space, space.moved([int(n) for n in shape], to_source))


def _take_nearest(
    packed: Float[ndarray, "x y z 6"], *, known: MaskImage, wanted: MaskImage, voxel_size: tuple[float, float, float]
) -> None:
    """Fill wanted voxels in place with the nearest known one's value."""
    if known.any() and wanted.any():
        nearest = distance_transform_edt(~known, sampling=voxel_size, return_distances=False, return_indices=True)
        packed[wanted] = packed[tuple(axis[wanted] for axis in nearest)]
