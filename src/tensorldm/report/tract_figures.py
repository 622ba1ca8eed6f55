"""Pictures of tracts: the cores' distances bundle by bundle, and one bundle of every method beside the reference."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.ndimage import gaussian_filter

from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.table import Row, methods_of
from tensorldm.evaluation.tract_measures import CORE, Bundle
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.imaging.volume import Space
from tensorldm.report.method_figures import new_figure, write_figure
from tensorldm.shapes import MaskImage
from tensorldm.tracts.core import FEWEST_STREAMLINES

MOST_DRAWN: Final = 400
"""Streamlines of one panel: more would hide each other."""
VIEWS: Final = (("from the front", (0, 2)), ("from the left", (1, 2)))
PER_ROW: Final = 8
LEAST_SHOWN_MM: Final = 0.05
"""The lower end of the logarithmic scale."""
INCHES: Final = 1.7


Shadow = tuple[Float[ndarray, "h w"], tuple[float, float, float, float]]
"""A faint picture of the brain and its edges in mm."""


def draw_core_distances(path: Path, rows: Sequence[Row]) -> None:
    """Mean core distance of every method, bundle by bundle, on a logarithmic scale; a cross for what was not found."""
    own = [row for row in rows if row.metric == CORE]
    bundles = list(dict.fromkeys(row.quantity for row in own))
    methods = [method for method in methods_of(own) if method != REFERENCE]
    figure = new_figure(max(6.0, 0.75 * len(bundles) + 1.5), 4.0, colour="white")
    axes = figure.subplots()
    width = 0.8 / max(len(methods), 1)
    for place, method in enumerate(methods):
        at = np.arange(len(bundles)) + (place - (len(methods) - 1) / 2) * width
        means = [_mean(own, method, bundle) for bundle in bundles]
        _draw_bars(axes, at, means, width=width, label=method, floor=method == NOISE_FLOOR)
    axes.set(yscale="log", ylabel="core distance, mm", xticks=np.arange(len(bundles)))
    axes.set_ylim(bottom=LEAST_SHOWN_MM)
    axes.yaxis.set_major_formatter("{x:g}")  # millimetres, not powers of ten
    axes.set_xticklabels(bundles, rotation=45, ha="right")
    axes.grid(axis="y", which="both", alpha=0.25)
    axes.legend(fontsize=7, ncols=min(len(methods), 4), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.text(0.995, 0.005, "× not found", fontsize=7, ha="right", color="0.4")
    write_figure(path, figure)


def draw_bundle(path: Path, bundles: Mapping[str, Bundle], *, space: Space, mask: MaskImage) -> None:
    """One bundle of every method in two views over the brain's outline; colours are directions, white is the core."""
    names = list(bundles)
    columns, blocks = min(PER_ROW, len(names)), ceil(len(names) / PER_ROW)
    figure = new_figure(columns * INCHES, blocks * len(VIEWS) * INCHES + 0.4, colour="black")
    grid = figure.subplots(blocks * len(VIEWS), columns, squeeze=False)
    for axes in grid.ravel():
        axes.set_axis_off()
    shadows = [_shadow(space, mask, plane) for _, plane in VIEWS]
    for number, name in enumerate(names):
        block, column = divmod(number, PER_ROW)
        for row, (view, plane) in enumerate(VIEWS):
            axes = grid[block * len(VIEWS) + row, column]
            _draw_view(axes, bundles[name], shadows[row], plane)
            if row == 0:
                axes.set_title(f"{name}\n{len(bundles[name].streamlines)} streamlines", color="white", fontsize=7)
            if column == 0:
                axes.text(0.0, 0.0, view, color="0.6", fontsize=6, transform=axes.transAxes)
    write_figure(path, figure)


def _draw_bars(
    axes: Any, at: Float[ndarray, " n"], means: Sequence[float | None], *, width: float, label: str, floor: bool
) -> None:
    heights = [np.nan if mean is None else max(mean, LEAST_SHOWN_MM) for mean in means]
    style = {"color": "0.75", "edgecolor": "0.4", "hatch": "///"} if floor else {}
    bars = axes.bar(at, heights, width, label="noise floor (reference again)" if floor else label, **style)
    missing = [place for place, mean in zip(at, means, strict=True) if mean is None]
    axes.plot(missing, [LEAST_SHOWN_MM * 1.15] * len(missing), "x", ms=4, color=bars.patches[0].get_facecolor())


def _draw_view(axes: Any, bundle: Bundle, shadow: Shadow, plane: tuple[int, int]) -> None:
    from matplotlib.collections import LineCollection

    across, up = plane
    depth, frame = shadow
    axes.imshow(np.sqrt(depth), extent=frame, origin="lower", cmap="gray", vmin=0, vmax=3.5, interpolation="bilinear")
    # Seen from the front the subject's right is on the left; from the left the front is on the left.
    axes.set(xlim=(frame[1], frame[0]), ylim=frame[2:], aspect="equal")
    segments, colours = _segments(bundle, plane)
    axes.add_collection(LineCollection(list(segments), colors=colours, linewidths=0.35, alpha=0.7))
    if bundle.core is not None:
        axes.plot(bundle.core[:, across], bundle.core[:, up], color="white", lw=1.3)
    else:
        words = f"fewer than {FEWEST_STREAMLINES}"
        axes.text(0.5, 0.06, words, color="white", fontsize=6, ha="center", transform=axes.transAxes)


def _segments(bundle: Bundle, plane: tuple[int, int]) -> tuple[Float[ndarray, "n 2 2"], Float[ndarray, "n 3"]]:
    """Pieces of at most so many streamlines, evenly chosen, each coloured by where it runs."""
    lines = bundle.streamlines
    keep = np.zeros(len(lines), dtype=bool)
    keep[:: max(1, ceil(len(lines) / MOST_DRAWN))] = True
    few = lines.chosen(keep)
    inner = few.owners[1:] == few.owners[:-1]
    starts, ends = few.points[:-1][inner], few.points[1:][inner]
    steps = np.abs(ends - starts).astype(np.float64)
    colours = steps / np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-9)
    return np.stack([starts, ends], axis=1)[:, :, list(plane)].astype(np.float64), np.clip(colours, 0, 1)


def _shadow(space: Space, mask: MaskImage, plane: tuple[int, int]) -> Shadow:
    """How deep the brain is behind each place of a view, from 0 to 1, and the edges of that picture in mm."""
    voxels = np.argwhere(mask)
    world = voxels @ space.affine[:3, :3].T + space.affine[:3, 3]
    side = 1.5 * max(space.voxel_size)  # wider than a voxel, or a grid would leave gaps; smoothed for what is left
    across, up = (world[:, axis] for axis in plane)
    edges = [np.arange(each.min() - side, each.max() + 2 * side, side) for each in (across, up)]
    counts, *_ = np.histogram2d(across, up, bins=edges)
    depth = gaussian_filter(counts, 1.0)
    frame = (float(edges[0][0]), float(edges[0][-1]), float(edges[1][0]), float(edges[1][-1]))
    return np.asarray(depth.T / max(depth.max(), 1)), frame


def _mean(rows: Sequence[Row], method: str, bundle: str) -> float | None:
    values = [row.value for row in rows if (row.method, row.quantity) == (method, bundle) and np.isfinite(row.value)]
    return float(np.mean(values)) if values else None
