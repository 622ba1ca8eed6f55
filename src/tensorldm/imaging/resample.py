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
from tensorldm.imaging.kernels import Weights, apply_weights, blur_weights, cubic_weights, linear_weights
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage

WORKING_VOXEL_MM = 2.0
SAME_SIZE_SHARE = 0.02
"""Sides this close to the wanted one are left as they are: interpolation would cost more than it gives."""
LEAST_WEIGHT = 1e-3


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

        Cubic, because linear weights blur and damp the noise by an amount that changes from voxel to voxel, and
        both would show in FA. Its overshoot is cut at the smallest and largest value of the series.
        """
        result = apply_weights(data, self._there)
        return np.clip(result, data.min(), data.max(), out=result)

    def inverse(self, data: Float[ndarray, "u v w *n"], mask: MaskImage) -> Float[ndarray, "x y z *n"]:
        """Maps on the source: linear, from voxels inside the mask only; zero where none is in reach."""
        inside = mask.reshape(*mask.shape, *(1,) * (data.ndim - 3))
        weight = apply_weights(mask.astype(data.dtype), self._back).reshape(*self.source.shape, *inside.shape[3:])
        summed = apply_weights(np.where(inside, data, 0), self._back)
        result = np.where(weight > LEAST_WEIGHT, summed / np.maximum(weight, LEAST_WEIGHT), 0)
        return np.asarray(result, dtype=data.dtype)

    def forward_mask(self, mask: MaskImage) -> MaskImage:
        """A mask on the target: where linear interpolation gives at least half."""
        return np.asarray(apply_weights(mask.astype(np.float32), self._there_linear) >= 0.5)

    def inverse_mask(self, mask: MaskImage) -> MaskImage:
        """A mask on the source: where linear interpolation gives at least half."""
        return np.asarray(apply_weights(mask.astype(np.float32), self._back) >= 0.5)

    def inverse_tensor(
        self, packed: Float[ndarray, "u v w 6"], mask: MaskImage, *, within: MaskImage
    ) -> Float[ndarray, "x y z 6"]:
        """Tensors on the source, in its mask ``within``, from those inside ``mask``; zero elsewhere.

        A voxel of ``within`` that no masked tensor reaches (at the rim, where two masks round differently) takes the
        nearest one.
        """
        logarithms = np.zeros_like(packed)
        logarithms[mask] = log(torch.from_numpy(packed[mask])).numpy()
        weight = apply_weights(mask.astype(packed.dtype), self._back)
        mean = apply_weights(logarithms, self._back) / np.maximum(weight, LEAST_WEIGHT)[..., None]
        reached = weight > LEAST_WEIGHT
        result = np.zeros(mean.shape, dtype=mean.dtype)
        inside = reached & within
        result[inside] = exp(torch.from_numpy(mean[inside])).numpy()
        if inside.any() and not reached[within].all():
            nearest = distance_transform_edt(
                ~inside, sampling=self.source.voxel_size, return_distances=False, return_indices=True
            )
            rim = within & ~reached
            result[rim] = result[tuple(axis[rim] for axis in nearest)]
        return result

    @property
    def _there(self) -> tuple[Weights, Weights, Weights]:
        x, y, z = (
            cubic_weights(positions, num) @ blur_weights(num, old_mm=old, new_mm=new)
            for positions, num, old, new in self._axes()
        )
        return x, y, z

    @property
    def _there_linear(self) -> tuple[Weights, Weights, Weights]:
        x, y, z = (linear_weights(positions, num) for positions, num, _, _ in self._axes())
        return x, y, z

    @property
    def _back(self) -> tuple[Weights, Weights, Weights]:
        # No blur: a grid made finer than its source holds no detail that the source's would alias.
        x, y, z = (linear_weights(p, num) for p, num, _, _ in Resampling(self.target, self.source)._axes())
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
