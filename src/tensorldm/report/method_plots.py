"""The v1 field of every method in one detail, and box plots of a measure over subjects: figures as in the paper."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.dti.maps import fractional_anisotropy, principal_direction
from tensorldm.errors import DataError
from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.report.insets import Inset
from tensorldm.report.method_figures import MethodFields, magnified, middle_cuts, new_figure, plain, write_figure
from tensorldm.report.slices import NORMAL, Cuts

LEAST_FA: Final = 0.15
"""Below it a direction is noise, and sticks would hide the picture."""
STICK: Final = 0.9
"""Length of a stick in the plane, in voxels."""
PER_ROW: Final = 5
INCHES: Final = 2.2


def draw_v1_fields(path: Path, methods: MethodFields, *, plane: str) -> None:
    """Sticks along each method's principal direction over its FA, in the most anisotropic detail of the reference."""
    cuts = middle_cuts(methods)
    inset = magnified(methods, cuts, plane)
    names = list(methods.fields)
    columns, rows = min(PER_ROW, len(names)), ceil(len(names) / PER_ROW)
    figure = new_figure(columns * INCHES, rows * (INCHES + 0.25), colour="black")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        _draw_field(axes, methods, name, cuts=cuts, plane=plane, inset=inset)
        axes.set_title(name, color="white", fontsize=8)
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    write_figure(path, figure)


def draw_boxes(path: Path, values: Mapping[str, Sequence[float]], *, measure: str, title: str) -> None:
    """A box for every method: median, quartiles, whiskers of 1.5 quartile ranges, and every single unit as a point."""
    finite = {name: [value for value in each if np.isfinite(value)] for name, each in values.items()}
    finite = {name: each for name, each in finite.items() if each}
    if not finite:
        raise DataError(f"{path}: there is no finite {measure} to draw. Measure some subjects first.")
    figure = new_figure(1.6 + 0.7 * len(finite), 3.4, colour="white")
    axes = figure.subplots()
    places = np.arange(1, len(finite) + 1)
    axes.boxplot(list(finite.values()), positions=places, widths=0.55, showfliers=False, medianprops={"color": "C1"})
    for place, each in zip(places, finite.values(), strict=True):
        # Spread by order, not at random: the same figures give the same picture.
        apart = np.linspace(-0.16, 0.16, len(each)) if len(each) > 1 else np.zeros(1)
        axes.plot(place + apart, each, "o", color="0.35", markersize=2.5, alpha=0.7)
    axes.set_xticks(places, labels=list(finite), rotation=35, ha="right", fontsize=8)
    axes.set(ylabel=measure)
    axes.set_title(title, fontsize=9)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    write_figure(path, figure)


def _draw_field(axes: Any, methods: MethodFields, name: str, *, cuts: Cuts, plane: str, inset: Inset) -> None:
    from matplotlib.collections import LineCollection

    tensors = methods.fields[name]
    fa = inset.of(cuts.row(methods.scatter(fractional_anisotropy(tensors)), plane))
    v1 = inset.of(cuts.row(methods.scatter(principal_direction(tensors)), plane))
    width, height = cuts.size_mm(plane)
    whole = cuts.row(methods.scatter(tensors[:, 0]), plane).shape
    aspect = (height / whole[0]) / (width / whole[1])
    plain(axes).imshow(np.nan_to_num(fa), cmap="gray", vmin=0, vmax=1.4, aspect=aspect, interpolation="nearest")
    segments, colours = sticks(fa, v1, plane=plane)
    axes.add_collection(LineCollection(list(segments), colors=list(colours), linewidths=1.1))
    if name == REFERENCE:
        for spine in axes.spines.values():
            spine.set(visible=True, color="white", linewidth=0.8)


def sticks(
    fa: Float[ndarray, "h w"], v1: Float[ndarray, "h w 3"], *, plane: str
) -> tuple[Float[ndarray, "n 2 2"], Float[ndarray, "n 3"]]:
    """Ends of a stick for every anisotropic voxel, in pixels (right, down), and its colour |v1|.

    A direction that leaves the plane has a short stick.
    """
    rows, columns = np.nonzero(np.nan_to_num(fa) > LEAST_FA)
    across, up = (axis for axis in range(3) if axis != NORMAL[plane])
    directions = v1[rows, columns]
    half = 0.5 * STICK * np.column_stack([directions[:, across], -directions[:, up]])
    middle = np.column_stack([columns, rows]).astype(half.dtype)
    return np.stack([middle - half, middle + half], axis=1), np.abs(directions).clip(0, 1)
