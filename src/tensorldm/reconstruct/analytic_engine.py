"""Closed forms through the same door as a model: no weights, no randomness, any grid."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from jaxtyping import Float
from torch import Tensor

from tensorldm.data.reference import SIGNAL_FLOOR
from tensorldm.dti.analytic import ade, ade_literal, minimum_norm
from tensorldm.reconstruct.engine import Traits, WorkingScan
from tensorldm.reconstruct.uncertainty import Calibration
from tensorldm.shapes import BVals, Directions, Packed

Formula = Callable[[Tensor, BVals, Directions], Packed]

FORMULAS: Final[Mapping[str, Formula]] = MappingProxyType(
    {"minimum-norm": minimum_norm, "ade": ade, "ade-literal": ade_literal}
)
"""By the names that tables use."""


@dataclass(frozen=True)
class AnalyticEngine:
    """A formula from signals and gradients to a tensor, voxel by voxel."""

    traits: Traits

    @property
    def notes(self) -> Mapping[str, Any]:
        """Nothing beside its name."""
        return {"Method": self.traits.name}

    @property
    def calibration(self) -> Calibration:
        """Without samples there is nothing to widen."""
        return Calibration()

    def estimate(self, scan: WorkingScan) -> Float[Tensor, "1 v 6"]:
        """The one tensor that the formula gives; signals count as at least the floor [choice: signal-floor]."""
        signal = scan.signal.clamp(min=SIGNAL_FLOOR * scan.b0_scale)
        return FORMULAS[self.traits.name](signal, scan.bvals.double(), scan.directions.double())[None]


def analytic_traits(name: str) -> Traits:
    """What the pipeline has to know of a formula."""
    return Traits(name, voxelwise=True, fixed_input=name == "ade-literal", samples=False)
