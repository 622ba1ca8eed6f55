"""The named bundles of the average head: centreline, cross-section and spread.

Control points are RAS mm on the right side, from one end to the other; a bundle of both sides is mirrored, a
commissure crosses x = 0 and is completed by its mirror image. Each point is (x, y, z, major radius, minor radius);
the major radius lies along ``wide``, made perpendicular to the course. Names are those of TractSeg.
"""

from dataclasses import dataclass
from typing import Final

Millimetres = int | float
Point = tuple[Millimetres, Millimetres, Millimetres, Millimetres, Millimetres]


@dataclass(frozen=True)
class Course:
    """One bundle as a curved, elliptical, fanning tube."""

    points: tuple[Point, ...]
    wide: tuple[float, float, float]
    density: float = 1.0
    """Share of the white matter it claims where it meets others."""
    commissure: bool = False


COURSES: Final[dict[str, Course]] = {
    "CST": Course(
        (
            (4, -38, -62, 3, 3),
            (5, -31, -46, 4, 3.5),
            (8, -23, -30, 5, 4.5),
            (14, -18, -13, 5, 4.5),
            (20, -16, 0, 5.5, 4.5),
            (25, -18, 16, 8, 5),
            (28, -20, 34, 15, 6),
            (32, -21, 50, 23, 7),
            (36, -23, 66, 30, 8),
        ),
        wide=(1.0, 0.45, 0.0),
        density=1.3,
    ),
    "CG": Course(
        (
            (6, 26, -8, 3, 2.5),
            (7, 37, 4, 3.5, 3),
            (8, 35, 18, 4, 3),
            (8, 21, 29, 4, 3.2),
            (8, 2, 35.5, 4, 3.5),
            (8, -18, 36, 4, 3.5),
            (9, -35, 31, 4, 3.5),
            (11, -47, 18, 4, 3),
            (16, -46, 3, 3.5, 3),
            (22, -35, -10, 3.5, 3),
            (25, -18, -24, 3.5, 3),
        ),
        wide=(0.0, 0.3, 1.0),
        density=1.4,
    ),
    "AF": Course(
        (
            (47, 20, 20, 10, 6),
            (41, 8, 25, 7, 5),
            (37, -10, 29, 5.5, 4.5),
            (36, -28, 30, 5.5, 4.5),
            (37, -43, 24, 6, 4.5),
            (42, -50, 10, 6, 4.5),
            (48, -42, -4, 6, 4.5),
            (52, -28, -12, 8, 5),
            (55, -12, -17, 10, 5),
        ),
        wide=(1.0, 0.0, 0.6),
    ),
    "IFO": Course(
        (
            (18, -90, 2, 12, 5),
            (27, -74, 3, 9, 4.5),
            (34, -55, 2, 6, 4),
            (36.5, -35, -2, 5, 3.5),
            (35, -15, -6, 4.5, 3),
            (32, 5, -7, 4, 3),
            (29, 22, -4, 5, 4),
            (27, 38, 4, 9, 5),
            (26, 52, 11, 14, 6),
        ),
        wide=(0.0, 0.0, 1.0),
        density=1.1,
    ),
    "ILF": Course(
        (
            (22, -90, -3, 10, 5),
            (33, -73, -5, 7, 4.5),
            (41, -55, -8, 5.5, 4),
            (44, -38, -13, 5, 4),
            (43.5, -20, -20, 5, 4),
            (41, -4, -27, 5, 4),
            (38, 8, -33, 6, 5),
        ),
        wide=(0.4, 0.0, 1.0),
    ),
    "UF": Course(
        (
            (38, 8, -32, 6, 4),
            (37, 2, -23, 4.5, 3.5),
            (34, 5, -13, 4, 3.5),
            (28, 17, -8, 4.5, 3.5),
            (22, 32, -7, 7, 4),
            (18, 46, -5, 9, 5),
        ),
        wide=(1.0, 0.0, 0.3),
    ),
    "ATR": Course(
        (
            (9, -12, 8, 4, 4),
            (14, 0, 7, 4, 4),
            (18, 11, 6, 6, 4),
            (20, 25, 9, 8, 4.5),
            (22, 40, 14, 12, 6),
            (22, 54, 19, 16, 8),
        ),
        wide=(0.0, 0.0, 1.0),
    ),
    "STR": Course(
        (
            (15, -20, 10, 4, 4),
            (22, -25, 22, 7, 5),
            (26, -30, 38, 13, 6),
            (30, -36, 58, 22, 8),
        ),
        wide=(0.4, 1.0, 0.0),
        density=0.8,
    ),
    "FPT": Course(  # codespell:ignore
        (
            (5, -21, -32, 4, 3),
            (11, -15, -14, 4, 3.5),
            (16, -4, 0, 5, 4),
            (19, 6, 12, 7, 4.5),
            (21, 16, 28, 12, 6),
            (22, 28, 46, 20, 8),
        ),
        wide=(0.3, 1.0, 0.0),
        density=0.9,
    ),
    "POPT": Course(
        (
            (9, -26, -30, 4, 3),
            (16, -22, -12, 4, 3.5),
            (23, -25, 2, 5, 4),
            (27, -34, 18, 8, 5),
            (27, -48, 34, 15, 7),
            (25, -60, 50, 22, 8),
        ),
        wide=(0.3, 1.0, 0.5),
        density=0.9,
    ),
    "OR": Course(
        (
            (23, -27, -3, 3, 2.5),
            (33, -27, -4, 5, 2.5),
            (36, -38, 0, 7, 3),
            (32, -54, 4, 8, 3.5),
            (24, -72, 4, 9, 4),
            (12, -90, 2, 11, 5),
        ),
        wide=(0.0, 0.0, 1.0),
    ),
    "SLF_I": Course(
        ((16, -62, 50, 8, 5), (17, -40, 52, 6, 5), (17, -15, 52, 6, 5), (17, 12, 47, 7, 5), (18, 34, 38, 9, 6)),
        wide=(1.0, 0.0, 0.0),
        density=0.7,
    ),
    "SLF_II": Course(
        ((36, -66, 36, 8, 5), (34, -45, 38, 6, 5), (32, -20, 38, 5.5, 5), (33, 5, 36, 6, 5), (35, 28, 30, 10, 6)),
        wide=(0.5, 0.0, 1.0),
        density=0.9,
    ),
    "SLF_III": Course(
        ((50, -45, 32, 9, 5), (45, -25, 30, 6, 5), (43, -5, 26, 6, 5), (46, 14, 18, 9, 6)),
        wide=(0.3, 0.0, 1.0),
        density=0.9,
    ),
    "FX": Course(
        ((2, 4, -3, 2, 2), (2, 0, 10, 2.2, 2), (2.5, -14, 17, 2.5, 2), (8, -28, 16, 2.5, 2), (18, -36, 6, 2.2, 2)),
        wide=(1.0, 0.0, 0.0),
    ),
    "SCP": Course(
        ((3, -22, -10, 3, 3), (5, -33, -20, 3, 3), (9, -45, -28, 3, 3), (14, -56, -34, 5, 4)),
        wide=(0.0, 0.0, 1.0),
    ),
    "ICP": Course(
        ((7, -40, -58, 3, 3), (9, -43, -46, 3, 3), (14, -48, -38, 3, 3), (18, -58, -36, 5, 4)),
        wide=(1.0, 0.0, 0.0),
    ),
    "CC_1": Course(
        ((0, 26, -4, 3, 2.5), (8, 30, -7, 4, 3), (16, 40, -8, 7, 5), (20, 52, -8, 10, 6)),
        wide=(0.0, 0.3, 1.0),
        commissure=True,
    ),
    "CC_2": Course(
        ((0, 28, 7, 11, 5), (9, 32, 8, 10, 4.5), (17, 42, 11, 11, 5), (21, 54, 15, 17, 7), (21, 66, 18, 22, 8)),
        wide=(0.0, -0.35, 1.0),
        density=1.5,
        commissure=True,
    ),
    "CC_3": Course(
        ((0, 17, 21.5, 11, 3.8), (10, 18, 24, 10, 4), (19, 20, 33, 11, 5), (25, 22, 48, 16, 7), (28, 24, 62, 20, 8)),
        wide=(0.0, 1.0, -0.4),
        density=1.4,
        commissure=True,
    ),
    "CC_4": Course(
        ((0, 2, 26, 10.5, 3.3), (11, 1, 28.5, 10, 4), (20, -1, 38, 9, 5), (27, -3, 54, 12, 7), (31, -4, 70, 14, 8)),
        wide=(0.0, 1.0, 0.0),
        density=1.3,
        commissure=True,
    ),
    "CC_5": Course(
        (
            (0, -12, 26.5, 10.5, 3.3),
            (11, -14, 29, 10, 4),
            (21, -18, 38, 9, 5),
            (29, -23, 54, 12, 7),
            (33, -26, 70, 14, 8),
        ),
        wide=(0.0, 1.0, 0.0),
        density=1.3,
        commissure=True,
    ),
    "CC_6": Course(
        (
            (0, -26, 22.5, 10, 3.8),
            (12, -30, 26, 10, 4),
            (22, -40, 33, 10, 5),
            (28, -52, 44, 16, 7),
            (29, -60, 60, 19, 8),
        ),
        wide=(0.0, 1.0, 0.5),
        density=1.3,
        commissure=True,
    ),
    "CC_7": Course(
        ((0, -36, 14, 7, 5), (10, -39, 15, 7, 4.5), (21, -50, 14, 8, 4), (25, -66, 11, 11, 4.5), (20, -84, 8, 16, 6)),
        wide=(0.0, 0.2, 1.0),
        density=1.5,
        commissure=True,
    ),
    "CA": Course(
        ((0, 3, -5, 2, 1.8), (10, 3, -6, 2, 1.8), (20, 0, -9, 2.2, 2), (30, -5, -14, 4, 3)),
        wide=(0.0, 1.0, 0.0),
        commissure=True,
    ),
    "MCP": Course(
        (
            (0, -15, -33, 9, 4),
            (12, -19, -34, 8, 4.5),
            (20, -32, -36, 6, 5),
            (24, -48, -37, 7, 6),
            (22, -64, -38, 12, 8),
        ),
        wide=(0.0, 0.0, 1.0),
        density=1.2,
        commissure=True,
    ),
}
"""The courses are drawn by hand after textbook anatomy; no atlas was measured."""


def all_names() -> tuple[str, ...]:
    """Every bundle, a pair as its left and its right one."""
    return tuple(
        name + side
        for name, course in COURSES.items()
        for side in (("",) if course.commissure else ("_left", "_right"))
    )


def control_points(name: str) -> tuple[Course, tuple[Point, ...]]:
    """The course of a named bundle and its control points on the side (or sides) that the name says."""
    base, _, side = name.rpartition("_")
    if side not in {"left", "right"}:
        course = COURSES[name]
        return course, (*(_mirror(point) for point in course.points[:0:-1]), *course.points)
    course = COURSES[base]
    return course, course.points if side == "right" else tuple(_mirror(point) for point in course.points)


def _mirror(point: Point) -> Point:
    return (-point[0], *point[1:])
