"""A series' gradient table: b-values and unit directions, in image axes, and the shells they form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.errors import DataError
from tensorldm.imaging.frames import directions_to_frame
from tensorldm.imaging.volume import Space

SHELL_GAP = 80.0
"""s/mm². Neighbouring b-values further apart than this, and than SHELL_GAP_SHARE, are of two shells."""
SHELL_GAP_SHARE = 0.05
OTHER_UNIT = (0.5, 4.0)
"""The highest b in ms/µm², a thousandth of s/mm². A series of b=0 alone has zeros there, or a scanner's 5."""


class Shell(NamedTuple):
    """Volumes of one b-value, up to the scanner's jitter."""

    bval: float
    """Mean, s/mm²."""
    indices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class GradientTable:
    """One b-value (s/mm²) and one direction per volume; directions are unit vectors in image axes, zero for b=0."""

    bvals: Float[ndarray, " n"]
    directions: Float[ndarray, "n 3"]

    def __post_init__(self) -> None:
        bvals = np.array(self.bvals, dtype=np.float64)
        directions = np.array(self.directions, dtype=np.float64)
        if not (np.isfinite(bvals).all() and np.isfinite(directions).all() and (bvals >= 0).all()):
            raise ValueError("b-values and directions are finite, and b-values not below 0")
        norms = np.linalg.norm(directions, axis=1)
        if (np.abs(norms - 1) > 1e-6)[bvals > B0_MAX_S_PER_MM2].any():
            raise ValueError("directions of weighted volumes are unit vectors")
        object.__setattr__(self, "bvals", bvals)
        object.__setattr__(self, "directions", directions)

    def __len__(self) -> int:
        return len(self.bvals)

    @property
    def is_b0(self) -> Bool[ndarray, " n"]:
        """Which volumes count as b=0."""
        return np.asarray(self.bvals <= B0_MAX_S_PER_MM2)

    @property
    def b0_indices(self) -> tuple[int, ...]:
        """Volumes that count as b=0, in order."""
        return tuple(int(i) for i in np.flatnonzero(self.is_b0))

    def shells(self) -> tuple[Shell, ...]:
        """The weighted shells by rising b-value; b=0 is none of them."""
        weighted = np.flatnonzero(~self.is_b0)
        if len(weighted) == 0:
            return ()
        order = weighted[np.argsort(self.bvals[weighted], kind="stable")]
        rising = self.bvals[order]
        cuts = np.flatnonzero(np.diff(rising) > np.maximum(SHELL_GAP, SHELL_GAP_SHARE * rising[1:])) + 1
        groups = (np.sort(group) for group in np.split(order, cuts))
        return tuple(Shell(float(self.bvals[group].mean()), tuple(int(i) for i in group)) for group in groups)

    def nearest_shell(self, bval: float) -> Shell:
        """The weighted shell nearest to a b-value; the caller judges whether it is near enough."""
        shells = self.shells()
        if not shells:
            highest = self.bvals.max(initial=0.0)
            other = OTHER_UNIT[0] <= highest <= OTHER_UNIT[1]
            hint = f", or multiply by 1000: up to {highest:g}, they look like ms/µm²" if other else ""
            raise DataError(
                f"None of the {len(self)} b-values is above {B0_MAX_S_PER_MM2:.0f} s/mm². "
                f"Give a diffusion-weighted series{hint}."
            )
        return min(shells, key=lambda shell: abs(shell.bval - bval))

    def select(self, indices: Sequence[int] | ndarray) -> "GradientTable":
        """The table of some volumes, in the order given."""
        chosen = np.asarray(indices, dtype=np.intp)
        return GradientTable(self.bvals[chosen], self.directions[chosen])

    def turned(self, matrix: Float[ndarray, "3 3"]) -> "GradientTable":
        """The table in axes that ``matrix`` (orthonormal) takes vectors to: after a flip, permutation or rotation."""
        return GradientTable(self.bvals, self.directions @ matrix.T)

    @classmethod
    def from_fsl(cls, bvals: Float[ndarray, " n"], bvecs: Float[ndarray, "n 3"], *, space: Space) -> "GradientTable":
        """From FSL's frame: voxel axes, the first mirrored when det(affine) > 0."""
        return cls(bvals, directions_to_frame(bvecs, space, source="fsl", target="image"))

    def to_fsl(self, space: Space) -> Float[ndarray, "n 3"]:
        """Directions in FSL's frame."""
        return directions_to_frame(self.directions, space, target="fsl")

    @classmethod
    def from_scanner(
        cls, bvals: Float[ndarray, " n"], directions: Float[ndarray, "n 3"], *, space: Space
    ) -> "GradientTable":
        """From world axes, as MRtrix3 keeps them."""
        return cls(bvals, directions_to_frame(directions, space, source="scanner", target="image"))

    def to_scanner(self, space: Space) -> Float[ndarray, "n 3"]:
        """Directions in world axes."""
        return directions_to_frame(self.directions, space, target="scanner")
