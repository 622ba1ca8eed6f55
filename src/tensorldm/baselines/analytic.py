"""Methods without a learned part: least-squares fits, and closed forms for three directions.

The fits from 6 and 12 directions show what more scanning would give; the closed forms what four volumes give for free.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from torch import Tensor

from tensorldm.baselines.method import Estimate
from tensorldm.baselines.scan import Scan
from tensorldm.data.selection import PAPER_SHELL, find_shell, select_axes, select_well_conditioned
from tensorldm.dti.analytic import ade, ade_literal, minimum_norm
from tensorldm.dti.fit import fit_ols
from tensorldm.errors import ConfigError
from tensorldm.imaging.gradients import GradientTable
from tensorldm.shapes import BVals, Directions, Packed

Choose = Callable[[GradientTable], tuple[int, ...]]
Solve = Callable[[Tensor, BVals, Directions], Packed]


@dataclass(frozen=True)
class AnalyticMethod:
    """Some volumes of a scan, and a formula that takes them to a tensor, voxel by voxel."""

    name: str
    description: str
    choose: Choose
    solve: Solve

    def reconstruct(self, scan: Scan) -> Estimate:
        """The formula on the chosen volumes, inside the mask."""
        volumes = self.choose(scan.gradients)
        return Estimate(scan.scatter(self.solve(*scan.inside(volumes))), volumes)


def _axes(gradients: GradientTable) -> tuple[int, ...]:
    return select_axes(gradients).volumes


def _six(gradients: GradientTable) -> tuple[int, ...]:
    return select_well_conditioned(gradients, 6, shell=PAPER_SHELL).volumes


def _twelve(gradients: GradientTable) -> tuple[int, ...]:
    return select_well_conditioned(gradients, 12, shell=PAPER_SHELL).volumes


def _whole_shell(gradients: GradientTable) -> tuple[int, ...]:
    return tuple(sorted((*gradients.b0_indices, *find_shell(gradients, PAPER_SHELL).indices)))


def _ordinary(signal: Tensor, bvals: BVals, directions: Directions) -> Packed:
    packed, _ = fit_ols(signal, bvals, directions)
    return packed


REFERENCE: Final = AnalyticMethod(
    "ols", "ordinary least squares from every b=0 and every direction of the shell", _whole_shell, _ordinary
)
ANALYTIC: Final = MappingProxyType(
    {
        method.name: method
        for method in (
            AnalyticMethod(
                "ade", "diagonal solved from the three actual directions, off-diagonals 0, made positive", _axes, ade
            ),
            AnalyticMethod(
                "ade-literal", "the same with each direction taken as the axis it is nearest to", _axes, ade_literal
            ),
            AnalyticMethod(
                "minimum-norm", "the least anisotropic tensor that explains the three directions", _axes, minimum_norm
            ),
            AnalyticMethod("ols-6", "ordinary least squares from one b=0 and six directions", _six, _ordinary),
            AnalyticMethod("ols-12", "ordinary least squares from one b=0 and twelve directions", _twelve, _ordinary),
        )
    }
)
"""By name, in the order of the tables."""


def analytic_method(name: str) -> AnalyticMethod:
    """The method of this name."""
    if name not in ANALYTIC:
        raise ConfigError(f"There is no analytic method '{name}'. Give one of {', '.join(ANALYTIC)}.")
    return ANALYTIC[name]
