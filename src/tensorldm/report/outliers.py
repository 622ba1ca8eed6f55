"""Which of many values does not belong to the others: robust z-scores, which an outlier itself cannot hide from.

A mean and a standard deviation follow the outlier they should reveal; the median and the median absolute deviation
(MAD) do not. z = 0.6745·(x − median)/MAD, and |z| > 3.5 is called an outlier (Iglewicz and Hoaglin, 1993). Where more
than half of the values are equal the MAD is 0 and the mean absolute deviation takes its place.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

OUTLIER_Z: Final = 3.5
FEWEST: Final = 5
"""Below this many values nobody can say what is usual."""
MAD_SHARE: Final = 0.6745
"""MAD over standard deviation of a normal distribution."""
MEAN_SHARE: Final = 0.7979
"""Mean absolute deviation over standard deviation of a normal distribution, √(2/π)."""


def robust_z(values: Sequence[float | None]) -> list[float | None]:
    """The score of each value among the others; None for a missing value, and for all where too few are known."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if len(known) < FEWEST:
        return [None] * len(values)
    middle = float(np.median(known))
    away = np.abs(known - middle)
    mad, mean = float(np.median(away)), float(away.mean())
    spread = mad / MAD_SHARE if mad > 0 else mean / MEAN_SHARE
    if spread == 0:
        return [None if value is None else 0.0 for value in values]
    return [None if value is None else (value - middle) / spread for value in values]
