"""From values to colours: the scales that maps are painted with, and their bars.

Colour maps are matplotlib's, chosen so that they read the same for colour-blind eyes: grey for amounts, viridis and
magma for doubts, berlin (dark in its middle) for signed values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from tensorldm.errors import ToolError

NO_PICTURES = "No picture was drawn: matplotlib is not installed. Install it with pip install 'tensorldm[report]'."
SIGNED = "berlin"
STOPS = 12
"""Of the gradient that a page draws as colour bar; finer than the eye sees at its size."""


@dataclass(frozen=True)
class Scale:
    """Which values are drawn darkest and brightest, in which colours and units."""

    low: float
    high: float
    colours: str = "gray"
    """Matplotlib's name of the colour map."""
    unit: str = ""
    """What stands behind the figures of the bar."""
    one: float = 1.0
    """The value that is written as 1: 1e-3 mm²/s for diffusivities."""

    def ticks(self) -> tuple[str, str, str]:
        """The ends and the middle as text."""
        low, middle, high = (_written(v / self.one) for v in (self.low, (self.low + self.high) / 2, self.high))
        return low, middle, high


ANISOTROPY = Scale(0.0, 1.0)
DIFFUSIVITY = Scale(0.0, 2e-3, unit="10⁻³ mm²/s", one=1e-3)
"""Tissue fills the greys, and fluid is white."""
OFF_DIAGONAL = Scale(-0.4e-3, 0.4e-3, SIGNED, "10⁻³ mm²/s", one=1e-3)
"""White matter's off-diagonals: a bundle at 45° to two axes has (AD − RD)/2, 0.3e-3 to 0.6e-3 mm²/s."""


def _written(value: float) -> str:
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−")


def paint(values: Float[ndarray, "h w *rgb"], scale: Scale | None) -> UInt8[ndarray, "h w 3"]:
    """The picture of values; without a scale they are colours from 0 to 1. What is not a number is black."""
    known = np.isfinite(values)
    if scale is None:
        share = np.where(known, values, 0.0)
    else:
        share = (np.where(known, values, scale.low) - scale.low) / (scale.high - scale.low)
    share = np.clip(share, 0, 1)
    if scale is None:
        return np.round(share * 255).astype(np.uint8)
    coloured = np.asarray(colour_map(scale.colours)(share))[..., :3]
    return np.round(np.where(known[..., None], coloured, 0.0) * 255).astype(np.uint8)


def bar(scale: Scale) -> str:
    """The scale as a gradient of CSS."""
    shares = np.linspace(0, 1, STOPS)
    rgb = np.round(np.asarray(colour_map(scale.colours)(shares))[:, :3] * 255).astype(int)
    return f"linear-gradient(to right, {', '.join(f'rgb({r} {g} {b})' for r, g, b in rgb)})"


def colour_map(name: str) -> Callable[[Any], Any]:
    """Matplotlib's colour map of this name; it is an extra, and whoever lacks it is told."""
    try:
        from matplotlib import colormaps
    except ImportError as error:
        raise ToolError(NO_PICTURES) from error
    found: Callable[[Any], Any] = colormaps[name]
    return found
