"""An image and where it lies: the array, its grid in the world, and the two affines a NIfTI file keeps.

World coordinates are NIfTI's: millimetres, x to the right, y to the front, z to the top (RAS).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from tensorldm.shapes import Affine

MovedMask = Bool[ndarray, "u v w"]
"""A mask on another grid than the one whose axes are called x y z in the same signature."""
SAME_GRID_VOXELS = 0.05
"""Corners of two equal grids may differ by this share of a voxel: programs round affines to float32 or quaternions."""


@dataclass(frozen=True, eq=False)
class Space:
    """A voxel grid in the world: its shape, and the affine from voxel indices to millimetres.

    ``affine`` is the one that is used. ``sform`` and ``qform`` are what a file kept beside it with their NIfTI codes;
    None stands for the affine itself. A grid made by ``moved`` carries both along, so neither goes stale.
    """

    shape: tuple[int, int, int]
    affine: Affine
    qform: Affine | None = None
    qform_code: int = 1
    sform: Affine | None = None
    sform_code: int = 1

    @property
    def voxel_size(self) -> tuple[float, float, float]:
        """Sides of a voxel in mm."""
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(x), float(y), float(z)

    @property
    def axes(self) -> Float[ndarray, "3 3"]:
        """Voxel axes in the world, in columns: orthonormal, a mirror included when the affine has one.

        The polar factor of the linear part: the nearest orthonormal matrix where the affine is sheared.
        """
        left, _, right = np.linalg.svd(self._unit_columns)
        return np.asarray(left @ right, dtype=np.float64)

    @property
    def is_flipped(self) -> bool:
        """Whether FSL mirrors the first axis of this grid's b-vectors: it does when det(affine) > 0."""
        return bool(np.linalg.det(self.affine[:3, :3]) > 0)

    @property
    def shear_degrees(self) -> float:
        """How far the voxel axes are from being perpendicular; 0 for every real scanner's grid."""
        cosines = (self._unit_columns.T @ self._unit_columns)[np.triu_indices(3, k=1)]
        return float(np.degrees(np.arcsin(np.clip(np.abs(cosines), 0, 1))).max())

    @property
    def _unit_columns(self) -> Float[ndarray, "3 3"]:
        linear = np.asarray(self.affine, dtype=np.float64)[:3, :3]
        return np.asarray(linear / np.linalg.norm(linear, axis=0))

    def moved(self, shape: Sequence[int], to_here: Affine) -> "Space":
        """Another grid over the same world; ``to_here`` takes its voxel indices to those of this grid."""
        x, y, z = shape
        return Space(
            shape=(int(x), int(y), int(z)),
            affine=self.affine @ to_here,
            qform=None if self.qform is None else self.qform @ to_here,
            qform_code=self.qform_code,
            sform=None if self.sform is None else self.sform @ to_here,
            sform_code=self.sform_code,
        )

    def same_grid(self, other: "Space") -> bool:
        """Whether both grids put every voxel in the same place."""
        if self.shape != other.shape:
            return False
        corners = np.stack(np.meshgrid(*[(0, n - 1) for n in self.shape], [1], indexing="ij"), axis=-1).reshape(-1, 4)
        apart = np.linalg.norm(corners @ (self.affine - other.affine).T, axis=1).max()
        return bool(apart <= SAME_GRID_VOXELS * min(self.voxel_size))


@dataclass(frozen=True, eq=False)
class Volume:
    """Voxel values on a grid; further axes (gradients, components) come after space."""

    data: Float[ndarray, "x y z *n"]
    space: Space

    def __post_init__(self) -> None:
        if self.data.shape[:3] != self.space.shape:
            raise ValueError(f"an array of shape {self.data.shape} does not lie on a grid of {self.space.shape}")

    def with_data(self, data: Float[ndarray, "x y z *n"]) -> "Volume":
        """Other values on the same grid."""
        return Volume(data, self.space)
