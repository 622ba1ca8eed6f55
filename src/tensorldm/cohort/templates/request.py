"""Which anatomy is wanted, and on which grid."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GridChoice:
    """The grid that anatomies are wanted on: RAS, isotropic, the brain in its middle."""

    shape: tuple[int, int, int] = (96, 112, 96)
    voxel_mm: float = 2.0

    @property
    def voxel_size(self) -> tuple[float, float, float]:
        """Sides in mm."""
        return self.voxel_mm, self.voxel_mm, self.voxel_mm


@dataclass(frozen=True)
class Request:
    """One anatomy: its name, whose head it is, its grid, and the bundles to keep."""

    name: str
    person: str
    grid: GridChoice
    bundles: tuple[str, ...] = ()
