"""Which gradient stands for which axis: the paper's choice of three directions, made in one place."""

from typing import NamedTuple

import torch

from tensorldm.shapes import Directions


class AxisChoice(NamedTuple):
    """For x, y and z in turn: the index of the direction that stands for it, and the angle between them."""

    indices: tuple[int, int, int]
    angles_degrees: tuple[float, float, float]


def nearest_to_axes(directions: Directions, *, antipodal: bool = True) -> AxisChoice:
    """The three directions, each used once, whose angles to the axes have the smallest sum [choice: nearest-axis].

    A gradient and its negative measure the same, so angles are antipodal; ``antipodal=False`` takes the paper's words
    literally: -x is then 180° from x.
    """
    from scipy.optimize import linear_sum_assignment  # lazy: a model can be built and run without SciPy

    assert len(directions) >= 3, "three axes need three directions"
    cosines = directions.double().cpu()
    angles = torch.rad2deg(torch.acos((cosines.abs() if antipodal else cosines).clamp(-1, 1)))
    # Joint, not greedy: the direction nearest to x may be the only one near y. Directions equal up to a file's
    # digits (repeats) tie, and then the earliest volume is taken.
    cost = angles.T.round(decimals=3) + 1e-6 * torch.arange(len(angles))
    x, y, z = (int(index) for index in linear_sum_assignment(cost.numpy())[1])
    return AxisChoice((x, y, z), (float(angles[x, 0]), float(angles[y, 1]), float(angles[z, 2])))
