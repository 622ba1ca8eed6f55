"""Linear quantile regression: coefficients with which a share ``level`` of the values lies below the prediction.

The pinball loss is convex but has kinks. It is majorised by parabolas (Hunter and Lange, Journal of Computational and
Graphical Statistics 2000): each round is a weighted least-squares problem of a few unknowns, for millions of voxels as
for ten. At the minimum each column of the design is balanced: where a column holds shares of a class, ``level`` of that
class lies below.
"""

from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

SMOOTHING: Final = (1e-1, 1e-2, 1e-3, 1e-4)
"""Residuals smaller than these count as these; each smoothing starts where the last one ended."""
MOST_ROUNDS: Final = 200
SETTLED: Final = 1e-6


def fit_quantile(design: Float[ndarray, "n p"], values: Float[ndarray, " n"], *, level: float) -> Float[ndarray, " p"]:
    """Coefficients of the ``level`` quantile of the values."""
    coefficients = np.linalg.lstsq(design, np.full(len(values), np.quantile(values, level)), rcond=None)[0]
    tilt = (2 * level - 1) * design.sum(axis=0)
    for smoothing in SMOOTHING:
        for _ in range(MOST_ROUNDS):
            weights = 1 / (smoothing + np.abs(values - design @ coefficients))
            weighted = design * weights[:, None]
            better = np.linalg.lstsq(weighted.T @ design, weighted.T @ values + tilt, rcond=None)[0]
            moved = float(np.abs(better - coefficients).max())
            coefficients = better
            if moved < SETTLED:
                break
    return np.asarray(coefficients)
