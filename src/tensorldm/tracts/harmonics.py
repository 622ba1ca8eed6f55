"""Even functions on the sphere as spherical harmonics, in the basis that MRtrix3 3.x reads.

Real and orthonormal, even orders only, coefficients ordered by l and then m = −l … l (DIPY's ``tournier07`` without
its legacy form). Projection uses a product rule that is exact for polynomials of degree 47: a sharp lobe keeps its
axis, where a least-squares fit to scattered directions would bend it towards them.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

MAX_ORDER: Final = 8
"""What tckgen's users are used to: 45 coefficients."""
RINGS: Final = 24
MERIDIANS: Final = 48
"""Gauss-Legendre nodes from pole to pole, and even steps around: 576 directions on the half sphere."""


def count(order: int = MAX_ORDER) -> int:
    """How many coefficients an even function of this order has."""
    return (order + 1) * (order + 2) // 2


def basis(directions: Float[ndarray, "n 3"], order: int = MAX_ORDER) -> Float[ndarray, "n k"]:
    """Values of every basis function in these unit directions."""
    from dipy.reconst.shm import real_sh_tournier

    x, y, z = directions.T
    polar, azimuth = np.arccos(np.clip(z, -1, 1)), np.arctan2(y, x)
    values, _, _ = real_sh_tournier(order, polar, azimuth, legacy=False)
    return np.asarray(values, dtype=np.float64)


@lru_cache(maxsize=1)
def quadrature() -> tuple[Float[ndarray, "n 3"], Float[ndarray, " n"]]:
    """Directions on the upper half sphere and their weights, which sum to 4π: even functions are the same below."""
    heights, ring_weights = np.polynomial.legendre.leggauss(RINGS)
    upper = heights > 0
    heights, ring_weights = heights[upper], ring_weights[upper]
    azimuth = 2 * np.pi * np.arange(MERIDIANS) / MERIDIANS
    radius = np.sqrt(1 - heights**2)[:, None]
    directions = np.stack(
        np.broadcast_arrays(radius * np.cos(azimuth), radius * np.sin(azimuth), heights[:, None]), axis=-1
    )
    weights = np.repeat(2 * ring_weights * 2 * np.pi / MERIDIANS, MERIDIANS)
    return directions.reshape(-1, 3), weights


def analysis_matrix(like: Tensor) -> Float[Tensor, "n k"]:
    """Values in the directions of ``quadrature`` times this matrix are the coefficients."""
    directions, weights = quadrature()
    return torch.from_numpy(basis(directions) * weights[:, None]).to(like)
