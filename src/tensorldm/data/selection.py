"""Which volumes of a series are used: the paper's b=0 and three axis-nearest ones, or a well-conditioned few.

A gradient and its negative measure the same, so the angle to an axis is antipodal by default [choice: nearest-axis].
The three directions are assigned to the three image axes jointly, each used once. All is deterministic.
"""

import itertools
from dataclasses import dataclass
from math import comb

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.dti.axes import AxisChoice, nearest_that_span, nearest_to_axes
from tensorldm.dti.signal import B0_MAX_S_PER_MM2, design_matrix
from tensorldm.errors import DataError
from tensorldm.imaging.gradients import GradientTable, Shell

PAPER_SHELL = 1000.0
"""s/mm²."""
SHELL_TOLERANCE = 100.0
"""s/mm²; scanners report 929 or 995 for a nominal 1000, and the next usual shell is far."""
SMALLEST_TRIPLE_PRODUCT = 0.1
"""|g1 · (g2 × g3)|: 1 for perpendicular directions, 0 for coplanar ones. Below 0.1 one direction is within 6° of
the plane of the other two, and the diffusivity across that plane is measured by noise."""
LARGEST_EXHAUSTIVE_SEARCH = 20_000


@dataclass(frozen=True)
class Selection:
    """The b=0 volumes, and the volume nearest to each image axis."""

    shell: float
    """Mean b-value of the shell, s/mm²."""
    shell_indices: tuple[int, ...]
    """Every volume of the shell."""
    b0: tuple[int, ...]
    axes: tuple[int, int, int]
    """Volume nearest to x, y and z."""
    angles_degrees: tuple[float, float, float]
    bvals: tuple[float, float, float]
    """Of the three, s/mm²."""

    @property
    def volumes(self) -> tuple[int, int, int, int]:
        """The paper's input: first b=0 [choice: first-b0], then x, y, z."""
        return (self.b0[0], *self.axes)


@dataclass(frozen=True)
class DirectionSubset:
    """One b=0 and a few directions that determine the tensor well together [choice: few-directions]."""

    b0: int
    directions: tuple[int, ...]
    condition_number: float

    @property
    def volumes(self) -> tuple[int, ...]:
        """The b=0 volume, then the directions in the order of the series."""
        return (self.b0, *self.directions)


def select_axes(
    gradients: GradientTable, *, shell: float = PAPER_SHELL, antipodal: bool = True, tolerance: float = SHELL_TOLERANCE
) -> Selection:
    """The first b=0 and the three volumes of the shell that together lie nearest to the image axes x, y, z.

    ``antipodal=False`` takes the paper's words literally: -x is then 180° from x.
    """
    b0 = _require_b0(gradients)
    found = find_shell(gradients, shell, tolerance=tolerance)
    directions = gradients.directions[list(found.indices)]
    if len(found.indices) < 3:
        raise DataError(
            f"At b={found.bval:.0f} s/mm² three directions are needed, found {len(found.indices)}. "
            "Give the whole series."
        )
    chosen, angles = _spanning(directions, found, antipodal=antipodal)
    x, y, z = (found.indices[i] for i in chosen)
    return Selection(
        shell=found.bval,
        shell_indices=found.indices,
        b0=b0,
        axes=(x, y, z),
        angles_degrees=angles,
        bvals=(float(gradients.bvals[x]), float(gradients.bvals[y]), float(gradients.bvals[z])),
    )


def _spanning(directions: Float[ndarray, "n 3"], shell: Shell, *, antipodal: bool) -> AxisChoice:
    """The nearest three; where they are coplanar, the nearest that are not; refused where all are."""
    vectors = torch.from_numpy(directions)
    nearest = nearest_to_axes(vectors, antipodal=antipodal)
    product = abs(np.linalg.det(directions[list(nearest.indices)]))
    if product >= SMALLEST_TRIPLE_PRODUCT:
        return nearest
    other = nearest_that_span(vectors, least_volume=SMALLEST_TRIPLE_PRODUCT, antipodal=antipodal)
    if other is None:
        listed = ", ".join(str(shell.indices[i]) for i in nearest.indices)
        raise DataError(
            f"The three directions nearest to the axes (volumes {listed}) are nearly coplanar "
            f"(triple product {product:.3f}, at least {SMALLEST_TRIPLE_PRODUCT} is needed). "
            "Acquire three directions that span space, such as x, y, z."
        )
    return other


def find_shell(gradients: GradientTable, bval: float, *, tolerance: float = SHELL_TOLERANCE) -> Shell:
    """The shell at a b-value; refused, with the shells that are there, if none lies within the tolerance."""
    nearest = gradients.nearest_shell(bval)
    if abs(nearest.bval - bval) > tolerance:
        there = ", ".join(f"{shell.bval:.0f} ({len(shell.indices)} volumes)" for shell in gradients.shells())
        raise DataError(
            f"No shell within {tolerance:.0f} of b={bval:.0f} s/mm²; found b = {there}. "
            f"Give a series with that shell; `tensorldm prepare` takes another one with --set shell={nearest.bval:.0f}."
        )
    return nearest


def select_well_conditioned(
    gradients: GradientTable, count: int, *, shell: float | None = None, tolerance: float = SHELL_TOLERANCE
) -> DirectionSubset:
    """One b=0 and the ``count`` directions (at least six) of lowest condition number of the tensor's design matrix.

    Every subset is tried where there are few; otherwise directions are taken one by one and then exchanged while
    that helps. Without ``shell`` the directions come from the shell with the most volumes.
    """
    b0 = _require_b0(gradients)
    shells = gradients.shells()
    if shell is not None or not shells:
        found = find_shell(gradients, shell if shell is not None else PAPER_SHELL, tolerance=tolerance)
    else:
        found = max(shells, key=lambda each: len(each.indices))
    if not 6 <= count <= len(found.indices):
        raise DataError(
            f"{count} directions asked for; between 6 and the {len(found.indices)} at b={found.bval:.0f} s/mm² "
            "can be given."
        )
    rows = _quadratic_forms(gradients.directions[list(found.indices)])
    if comb(len(rows), count) <= LARGEST_EXHAUSTIVE_SEARCH:
        chosen = _best_of_all(rows, count)
    else:
        chosen = _exchange(rows, _greedy(rows, count))
    return DirectionSubset(
        b0=b0[0],
        directions=tuple(found.indices[i] for i in sorted(chosen)),
        condition_number=float(np.linalg.cond(rows[sorted(chosen)])),
    )


def _require_b0(gradients: GradientTable) -> tuple[int, ...]:
    if not gradients.is_b0.any():
        raise DataError(
            f"No b=0 volume: the lowest b-value is {gradients.bvals.min():.0f} s/mm² and up to "
            f"{B0_MAX_S_PER_MM2:.0f} counts as 0. Add a b=0 volume to the series."
        )
    return gradients.b0_indices


def _quadratic_forms(directions: Float[ndarray, "n 3"]) -> Float[ndarray, "n 6"]:
    """What each direction measures of the six components: the design matrix at b=1, without ln S0."""
    vectors = torch.from_numpy(np.array(directions))
    return np.asarray(design_matrix(torch.ones(len(vectors), dtype=vectors.dtype), vectors)[:, :6].numpy())


def _best_of_all(rows: Float[ndarray, "n 6"], count: int) -> tuple[int, ...]:
    subsets = np.array(list(itertools.combinations(range(len(rows)), count)))
    conditions = np.linalg.cond(rows[subsets])
    return tuple(int(i) for i in subsets[_first_lowest(conditions)])


def _greedy(rows: Float[ndarray, "n 6"], count: int) -> tuple[int, ...]:
    """Take in turn the direction that adds most to what is spanned; once six are, the one of lowest condition."""
    chosen: list[int] = []
    rest = rows.copy()
    while len(chosen) < min(count, rows.shape[1]):
        norms = np.linalg.norm(rest, axis=1)
        norms[chosen] = -1.0
        best = _first_lowest(-norms)
        chosen.append(best)
        unit = rest[best] / max(norms[best], np.finfo(float).tiny)
        rest = rest - np.outer(rest @ unit, unit)
    while len(chosen) < count:
        free = [i for i in range(len(rows)) if i not in chosen]
        conditions = np.linalg.cond(rows[np.array([[*chosen, i] for i in free])])
        chosen.append(free[_first_lowest(conditions)])
    return tuple(chosen)


def _exchange(rows: Float[ndarray, "n 6"], start: tuple[int, ...]) -> tuple[int, ...]:
    """Swap one direction at a time, the best swap first, until no swap lowers the condition number."""
    chosen = list(start)
    condition = float(np.linalg.cond(rows[chosen]))
    while True:
        free = [i for i in range(len(rows)) if i not in chosen]
        swaps = [[*chosen[:place], new, *chosen[place + 1 :]] for place in range(len(chosen)) for new in free]
        conditions = np.linalg.cond(rows[np.array(swaps)])
        best = _first_lowest(conditions)
        if not conditions[best] < condition * (1 - 1e-9):
            return tuple(chosen)
        chosen, condition = swaps[best], float(conditions[best])


def _first_lowest(values: Float[ndarray, " n"]) -> int:
    """Index of the lowest value; values equal up to rounding tie, and the first is taken on every machine."""
    return int(np.flatnonzero(values <= values.min() + 1e-9 * max(1.0, abs(values.min())))[0])
