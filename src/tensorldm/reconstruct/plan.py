"""What will be done with a scan, decided from its grid and gradients alone, before a voxel or a model is read."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.data.selection import PAPER_SHELL, Selection, select_axes, select_well_conditioned
from tensorldm.dti.signal import design_matrix
from tensorldm.imaging.flips import LARGEST_CONDITION
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.grid import Grid, working_grid
from tensorldm.imaging.volume import Space
from tensorldm.reconstruct import guard
from tensorldm.reconstruct.engine import Traits
from tensorldm.reconstruct.settings import MOST_DIRECTIONS, Settings

FAINT_KNOWLEDGE = 0.3
"""Of a component before anything is measured; a direction along an axis adds 1 to what is known of its diffusivity.
What repeats tell beyond that, turned by a degree or two in motion correction, is less than this and mostly noise."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A scan's way through the pipeline."""

    space: Space
    """The native grid."""
    gradients: GradientTable
    """Of the whole series, in native image axes."""
    grid: Grid
    """From the native to the working grid, before it is cropped."""
    selection: Selection
    used: tuple[int, ...]
    """Volumes that the tensor is made from, b=0 first."""
    angles_degrees: tuple[float, float, float]
    """Of those among them that are nearest to x, y and z (in RAS order), to their axes."""
    warnings: tuple[str, ...]

    @property
    def read(self) -> tuple[int, ...]:
        """What is read: every b=0 and the whole shell, because the directions' signs can be checked with them."""
        return tuple(sorted((*self.selection.b0, *self.selection.shell_indices)))

    @property
    def used_gradients(self) -> GradientTable:
        """Of the volumes that are used, in the working grid's image axes; a b=0 has no direction."""
        table = self.grid.forward_gradients(self.gradients.select(self.used))
        return GradientTable(table.bvals, np.where(table.is_b0[:, None], 0.0, table.directions))


def make_plan(space: Space, gradients: GradientTable, *, traits: Traits, settings: Settings) -> Plan:
    """Choose volumes and grid; refuse, or warn of, what the method does not know."""
    ras = working_grid(space)
    # In RAS axes, so that the choice does not depend on how the array is stored.
    turned = ras.forward_gradients(gradients)
    selection = select_axes(turned, shell=_best_shell(turned))
    told = not (traits.voxelwise or traits.fixed_input or traits.four_volumes)
    everything = settings.directions == "all" or (settings.directions == "auto" and told)
    guard.check_settings(traits, settings)
    words = [
        *guard.check_bvalue(selection.shell, traits=traits, force=settings.force),
        *([] if everything and len(selection.shell_indices) > 3 else guard.check_angles(selection, traits=traits)),
        *guard.check_grid(space, traits=traits),
    ]
    # A formula that looks at one voxel at a time needs no common grid, and loses nothing to interpolation.
    grid = Grid(space) if traits.voxelwise and settings.grid == "native" else ras
    if settings.spd == "raw" and settings.grid == "native":
        guard.refuse_raw_resampling(grid)
    used: tuple[int, ...] = selection.volumes
    angles = selection.angles_degrees
    if everything:
        used = (*selection.b0, *_directions(turned, selection, most=MOST_DIRECTIONS if told else None))
        angles = select_axes(turned.select(used), shell=selection.shell).angles_degrees
    return Plan(space, gradients, grid, selection, used, angles, tuple(words))


def _directions(gradients: GradientTable, selection: Selection, *, most: int | None) -> tuple[int, ...]:
    """The shell's volumes; of more than ``most`` those that together measure the tensor best."""
    if most is None or len(selection.shell_indices) <= most:
        return selection.shell_indices
    directions = torch.from_numpy(gradients.directions[list(selection.shell_indices)])
    rows = -design_matrix(torch.ones(len(directions), dtype=directions.dtype), directions)[:, :6].numpy()
    if np.linalg.cond(rows) > LARGEST_CONDITION:
        return tuple(selection.shell_indices[place] for place in sorted(_most_informative(rows, most)))
    return select_well_conditioned(gradients, most, shell=selection.shell).directions


def _most_informative(rows: Float[ndarray, "n 6"], count: int) -> list[int]:
    """Take in turn the direction that tells most about what is known least, the earliest of equal ones.

    For directions that leave a part of the tensor unmeasured, such as three that are repeated many times: whichever
    are taken, their condition number is infinite, and the lowest one is rounding error.
    """
    chosen: list[int] = []
    known = FAINT_KNOWLEDGE * np.eye(6)
    for _ in range(count):
        seen = rows @ np.linalg.inv(known)
        gains = (seen**2).sum(axis=1) / (1 + (seen * rows).sum(axis=1))  # by how much the trace of the inverse falls
        gains[chosen] = -1.0
        best = int(np.flatnonzero(gains >= (1 - 1e-6) * gains.max())[0])
        chosen.append(best)
        known += np.outer(rows[best], rows[best])
    return chosen


def _best_shell(gradients: GradientTable) -> float:
    """The b-value nearest to the paper's among the shells with three directions; where none has, the nearest."""
    enough = [shell for shell in gradients.shells() if len(shell.indices) >= 3]
    if not enough:
        return gradients.nearest_shell(PAPER_SHELL).bval
    return min(enough, key=lambda shell: abs(shell.bval - PAPER_SHELL)).bval
