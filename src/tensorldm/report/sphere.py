"""The gradient directions on a sphere, seen from the subject's right, front and above; those that were used are marked.

A direction and its negative measure the same, so each is shown where it faces the eye.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.report.html import Markup, joined, tag

SIZE, RADIUS = 360, 138
EYE: Final = np.array([0.60, 0.57, 0.56])
"""Where the eye is, in RAS image axes: all three axes come towards it."""
AXIS_NAMES: Final = ("x right", "y front", "z top")
AXIS_KINDS: Final = ("red", "green", "blue")


@dataclass(frozen=True)
class Used:
    """A weighted volume that the tensor was made from."""

    volume: int
    axis: int | None
    """0, 1, 2 where it stands for x, y or z; None where all directions were used."""


def sphere(directions: Float[ndarray, "n 3"], used: Sequence[Used], *, volumes: Sequence[int]) -> Markup:
    """Unit vectors of the weighted ``volumes`` in RAS image axes; the used ones are large, in their axis's colour."""
    marks = {each.volume: each for each in used}
    flat, depth = _project(directions)
    facing = np.where(depth < 0, -1.0, 1.0)
    seen = flat * facing[:, None]
    small = [
        _dot(place, f"volume {volume}") for place, volume in zip(seen, volumes, strict=True) if volume not in marks
    ]
    large = [_mark(place, marks[volume]) for place, volume in zip(seen, volumes, strict=True) if volume in marks]
    spoken = f"{len(volumes)} gradient directions on a sphere, {len(used)} of them used: volumes " + ", ".join(
        str(each.volume) for each in used
    )
    return tag(
        "svg",
        tag("title", spoken),
        tag("circle", cx=SIZE / 2, cy=SIZE / 2, r=RADIUS, class_="globe"),
        [_great_circle(axis) for axis in range(3)],
        [_axis(axis) for axis in range(3)],
        small,
        large,
        viewBox=f"0 0 {SIZE} {SIZE}",
        role="img",
        aria_label=spoken,
        class_="chart sphere",
    )


def _project(points: Float[ndarray, "n 3"]) -> tuple[Float[ndarray, "n 2"], Float[ndarray, " n"]]:
    """Places on the picture, from its middle and in radii, y downwards; and how far each faces the eye."""
    eye = EYE / np.linalg.norm(EYE)
    across = np.cross([0.0, 0.0, 1.0], eye)
    across /= np.linalg.norm(across)
    up = np.cross(eye, across)
    return np.stack([points @ across, -(points @ up)], axis=1), points @ eye


def _place(flat: Float[ndarray, " 2"]) -> tuple[float, float]:
    x, y = np.round(SIZE / 2 + RADIUS * flat, 1)
    return float(x), float(y)


def _great_circle(axis: int) -> Markup:
    """The circle across one axis: its near half drawn through, its far half dotted."""
    turn = np.linspace(0, 2 * np.pi, 97)
    points = np.zeros((len(turn), 3))
    first, second = (other for other in range(3) if other != axis)
    points[:, first], points[:, second] = np.cos(turn), np.sin(turn)
    flat, depth = _project(points)
    return joined([_line(flat, depth >= -1e-9, "near"), _line(flat, depth <= 1e-9, "far")])


def _line(flat: Float[ndarray, "n 2"], shown: ndarray, kind: str) -> Markup:
    """The shown points joined; a gap starts a new stroke."""
    steps, open_ = [], False
    for point, here in zip(flat, shown, strict=True):
        if here:
            x, y = _place(point)
            steps.append(f"{'L' if open_ else 'M'}{x} {y}")
        open_ = bool(here)
    return tag("path", d="".join(steps), class_=f"meridian {kind}")


def _axis(axis: int) -> Markup:
    """From the middle to just beyond the sphere."""
    flat, _ = _project(np.eye(3)[axis : axis + 1] * 1.12)
    label, _ = _project(np.eye(3)[axis : axis + 1] * 1.38)
    x, y = _place(flat[0])
    text_x, text_y = _place(label[0])
    line = tag("line", x1=SIZE / 2, y1=SIZE / 2, x2=x, y2=y, class_=f"ray {AXIS_KINDS[axis]}")
    return joined([line, tag("text", AXIS_NAMES[axis], x=text_x, y=text_y + 4, class_="note")])


def _dot(flat: Float[ndarray, " 2"], words: str) -> Markup:
    x, y = _place(flat)
    return tag("g", tag("title", words), tag("circle", cx=x, cy=y, r=4, class_="dot"))


def _mark(flat: Float[ndarray, " 2"], used: Used) -> Markup:
    x, y = _place(flat)
    kind = "used" if used.axis is None else f"used {AXIS_KINDS[used.axis]}"
    return tag(
        "g",
        tag("title", f"volume {used.volume}, used"),
        tag("circle", cx=x, cy=y, r=9, class_=kind),
        tag("text", str(used.volume), x=x, y=y + 3.5, class_="inside"),
    )
