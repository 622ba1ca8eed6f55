"""What a network sees in place of physical units; the only module that knows it.

DWIs are divided by one robust b=0 scale per subject, the same for all volumes, so that S/S0 survives. Tensor
components are divided by a fixed physical scale per group, never by a subject's own range, and nothing is
subtracted: zero stays zero, so the background, padding and the sign of an off-diagonal mean the same in both units.
Axes: b batch, c DWI volume, d tensor component (6), x y z space.
"""

from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.components import DIAGONAL, OFF_DIAGONAL
from tensorldm.dti.intensity import robust_b0_scale
from tensorldm.errors import DataError
from tensorldm.shapes import Components

DIAGONAL_SCALE_MM2_PER_S = 1e-3
"""[choice: tensor-scaling] 1 µm²/ms: tissue lies near 0.7, free water at body temperature at 3."""
OFF_DIAGONAL_SCALE_MM2_PER_S = 0.5e-3
"""[choice: tensor-scaling] A coherent bundle at 45° to an axis has |D_xy| = (AD - RD)/2, about 0.7e-3 mm²/s at most."""


@dataclass(frozen=True)
class TensorScaling:
    """Fixed physical scale of each group of components, in mm²/s."""

    diagonal: float = DIAGONAL_SCALE_MM2_PER_S
    off_diagonal: float = OFF_DIAGONAL_SCALE_MM2_PER_S

    def __post_init__(self) -> None:
        for scale in (self.diagonal, self.off_diagonal):
            assert 0 < scale < 1, "a scale is a diffusivity in mm²/s"

    @cached_property
    def per_component(self) -> tuple[float, ...]:
        """The scale of each component, in the package's order."""
        scales = dict.fromkeys(DIAGONAL, self.diagonal) | dict.fromkeys(OFF_DIAGONAL, self.off_diagonal)
        return tuple(scales[d] for d in sorted(scales))

    def scale(self, components: Components) -> Components:
        """From mm²/s to what a network sees."""
        return components / self._like(components)

    def unscale(self, components: Components) -> Components:
        """From what a network gives to mm²/s."""
        return components * self._like(components)

    def _like(self, components: Components) -> Float[Tensor, "1 6 1 1 1"]:
        """Made where the components are: a copy from the host would make both wait."""
        scales = components.new_full((1, len(DIAGONAL) + len(OFF_DIAGONAL), 1, 1, 1), self.off_diagonal)
        scales[:, DIAGONAL[0] : DIAGONAL[-1] + 1] = self.diagonal
        return scales


def scale_dwi(
    dwi: Float[Tensor, "c x y z"], b0: Float[Tensor, "x y z"], *, mask: Bool[Tensor, "x y z"]
) -> tuple[Float[Tensor, "c x y z"], float]:
    """All volumes divided by the one robust scale of ``b0`` inside the mask, and that scale."""
    scale = float(robust_b0_scale(b0, mask))
    if not (isfinite(scale) and scale > 0):
        raise DataError(
            f"the b=0 volume has no signal inside the brain mask (its scale is {scale:g}). "
            "Check that the mask covers the brain and that the volumes are not empty."
        )
    return dwi / scale, scale
