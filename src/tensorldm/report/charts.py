"""Charts drawn as SVG inside the page: sharp at every size, coloured by the page's own light or dark style."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.report.html import Markup, joined, tag

WIDTH, HEIGHT = 520, 250
LEFT, RIGHT, TOP, BOTTOM = 14, 14, 34, 40
BINS: Final = 64


@dataclass(frozen=True)
class Axis:
    """The values of a histogram's axis."""

    low: float
    high: float
    label: str
    one: float = 1.0
    """The value that is written as 1."""
    num_ticks: int = 5

    def at(self, value: float) -> float:
        """Where a value stands in the picture."""
        return LEFT + (value - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)


def histogram(
    brain: Float[ndarray, " n"],
    white: Float[ndarray, " m"],
    *,
    axis: Axis,
    expected: tuple[float, float],
    form: str,
    title: str,
) -> Markup:
    """Values of the whole brain and of its white matter; the latter's median against its expected range."""
    edges = np.linspace(axis.low, axis.high, BINS + 1)
    counts = [np.histogram(values, edges)[0] for values in (brain, white)]
    highest = max(int(counts[0].max()), 1)
    low, high = expected
    middle = float(np.median(white)) if len(white) else None
    found = "no voxel looks like white matter" if middle is None else f"median {middle / axis.one:{form}}"
    spoken = (
        f"{title}: in white matter {found}; medians of healthy adults are {low / axis.one:{form}} to "
        f"{high / axis.one:{form}}."
    )
    parts = [
        tag("title", spoken),
        _band(axis, expected, f"expected {low / axis.one:{form}}–{high / axis.one:{form}}"),
        _area(counts[0], axis, edges, highest, "brain"),
        _area(counts[1], axis, edges, highest, "white"),
        _ticks(axis),
    ]
    if middle is not None:
        parts.append(_marker(axis, middle, f"this scan {middle / axis.one:{form}}"))
    return tag("svg", parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=spoken, class_="chart")


def _area(counts: ndarray, axis: Axis, edges: Float[ndarray, " e"], highest: int, kind: str) -> Markup:
    floor, room = HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP
    steps = [f"M{axis.at(edges[0]):.1f} {floor}"]
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        top = floor - room * min(int(count) / highest, 1.0)
        steps.append(f"L{axis.at(left):.1f} {top:.1f}L{axis.at(right):.1f} {top:.1f}")
    steps.append(f"L{axis.at(edges[-1]):.1f} {floor}Z")
    return tag("path", d="".join(steps), class_=f"area {kind}")


def _band(axis: Axis, expected: tuple[float, float], words: str) -> Markup:
    left, right = (axis.at(value) for value in expected)
    shape = tag(
        "rect", x=round(left, 1), y=TOP, width=round(right - left, 1), height=HEIGHT - BOTTOM - TOP, class_="band"
    )
    return joined([shape, tag("text", words, x=round((left + right) / 2, 1), y=TOP - 20, class_="note")])


def _marker(axis: Axis, value: float, words: str) -> Markup:
    x = round(axis.at(min(max(value, axis.low), axis.high)), 1)
    line = tag("line", x1=x, x2=x, y1=TOP - 2, y2=HEIGHT - BOTTOM, class_="marker")
    return joined([line, tag("text", words, x=x, y=TOP - 6, class_="note strong")])


def _ticks(axis: Axis) -> Markup:
    floor = HEIGHT - BOTTOM
    parts = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=floor, y2=floor, class_="axis")]
    for value in np.linspace(axis.low, axis.high, axis.num_ticks):
        x = round(axis.at(float(value)), 1)
        parts.append(tag("line", x1=x, x2=x, y1=floor, y2=floor + 4, class_="axis"))
        parts.append(tag("text", f"{value / axis.one:.3g}", x=x, y=floor + 16))
    parts.append(tag("text", axis.label, x=WIDTH / 2, y=HEIGHT - 6))
    return joined(parts)
