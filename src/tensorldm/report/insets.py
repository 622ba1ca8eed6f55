"""The part of a slice that is magnified: where the reference has most to show, the same for every method."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.ndimage import uniform_filter

INSET_MM: Final = 40.0
"""Side of the magnified square: a few bundles beside each other."""


@dataclass(frozen=True)
class Inset:
    """A rectangle of a picture, in pixels from its top left corner."""

    top: int
    left: int
    height: int
    width: int

    def of(self, picture: Float[ndarray, "h w *rgb"]) -> Float[ndarray, "a b *rgb"]:
        """The magnified part."""
        return np.ascontiguousarray(picture[self.top : self.top + self.height, self.left : self.left + self.width])

    def frame(self, shape: tuple[int, ...]) -> str:
        """Where it lies in a picture of this many pixels, as CSS."""
        rows, columns = shape[:2]
        return (
            f"top: {100 * self.top / rows:.2f}%; left: {100 * self.left / columns:.2f}%; "
            f"height: {100 * self.height / rows:.2f}%; width: {100 * self.width / columns:.2f}%"
        )


def choose_inset(weight: Float[ndarray, "h w"], *, size_mm: tuple[float, float]) -> Inset:
    """The square with the highest mean of ``weight`` (FA of the reference) in a slice of this size; air counts as 0."""
    rows, columns = weight.shape
    height = min(rows, max(1, round(INSET_MM * rows / size_mm[1])))
    width = min(columns, max(1, round(INSET_MM * columns / size_mm[0])))
    sums = uniform_filter(np.nan_to_num(weight).astype(np.float64), size=(height, width), mode="constant")
    # The filter's value at (i, j) is of the window that starts half a side before.
    starts = sums[height // 2 : height // 2 + rows - height + 1, width // 2 : width // 2 + columns - width + 1]
    top, left = np.unravel_index(int(np.argmax(starts)), starts.shape)
    return Inset(int(top), int(left), height, width)
