"""Pictures of a tensor field for the eye: three planes of b=0, FA, MD and colour FA, methods side by side.

Matplotlib is an extra (``report``); without it everything else works, and whoever asks for a picture is told.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.dti.maps import colour_fa, fractional_anisotropy, mean_diffusivity
from tensorldm.errors import ToolError
from tensorldm.imaging.atomic import write_bytes
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.volume import Space
from tensorldm.report.colours import DIFFUSIVITY, NO_PICTURES
from tensorldm.shapes import Image, MaskImage

B0_PERCENTILE = 99.0
INCHES_PER_PANEL = 1.9
INCHES_PER_LINE = 0.14
DOTS_PER_INCH = 110
PLANES = (("sagittal", 0), ("coronal", 1), ("axial", 2))
EDGES = {"sagittal": "PA", "coronal": "LR", "axial": "LR"}
"""What is on the left and on the right of a picture: a radiologist's own habit is the other way round."""
EDGE_COLOUR = "gold"


@dataclass(frozen=True, eq=False)
class Panel:
    """One column of the picture: a map and the value that is shown brightest; not-a-number is left black."""

    title: str
    image: Float[ndarray, "x y z *rgb"]
    brightest: float
    colours: str = "gray"
    """Matplotlib's name of the colour map."""
    unit: str | None = None
    """What stands under the column's colour bar; None draws no bar."""


def draw_overview(
    path: Path,
    b0: Image,
    *,
    tensors: Mapping[str, Float[ndarray, "x y z 6"]],
    space: Space,
    mask: MaskImage,
) -> None:
    """Draw b=0, then FA, MD and colour FA of every tensor (image axes, mm²/s) beside each other, in three planes."""
    maps = [tensor_panels(field, f"\n{name}", space=space, mask=mask) for name, field in tensors.items()]
    panels = [b0_panel(b0, mask), *(panel for same_map in zip(*maps, strict=True) for panel in same_map)]
    draw_panels(path, panels, space=space, mask=mask)


def draw_panels(path: Path, panels: Sequence[Panel], *, space: Space, mask: MaskImage, remark: str = "") -> None:
    """Draw maps of one grid beside each other, whatever its orientation, in three planes through the mask's middle."""
    ras = to_ras(space)
    turned = [replace(panel, image=ras.forward(panel.image)) for panel in panels]
    write_bytes(path, _render(turned, ras.forward_mask(mask), ras.target.voxel_size, remark))


def b0_panel(b0: Image, mask: MaskImage) -> Panel:
    """The b=0 image, with the surroundings of the brain."""
    return Panel("b=0", b0, float(np.percentile(b0[mask], B0_PERCENTILE)))


def tensor_panels(
    packed: Float[ndarray, "x y z 6"], suffix: str = "", *, space: Space, mask: MaskImage
) -> tuple[Panel, Panel, Panel]:
    """FA, MD and colour FA of one tensor; colours in scanner axes, so that red is left-right on every grid."""
    inside = torch.from_numpy(tensor_to_frame(packed[mask].astype(np.float64), space, target="scanner"))

    def image(values: torch.Tensor) -> Float[ndarray, "x y z *rgb"]:
        whole = np.zeros((*mask.shape, *values.shape[1:]), dtype=np.float32)
        whole[mask] = values.numpy()
        return whole

    return (
        Panel(f"FA{suffix}", image(fractional_anisotropy(inside)), 1.0),
        Panel(f"MD{suffix}", image(mean_diffusivity(inside)), DIFFUSIVITY.high),
        Panel(f"colour FA{suffix}", image(colour_fa(inside)), 1.0),
    )


def _render(panels: list[Panel], mask: MaskImage, voxel_size: tuple[float, float, float], remark: str) -> bytes:
    """The picture as PNG: a row per plane through the middle of the mask, a column per panel."""
    scale = f"FA 0 to 1, MD 0 to {DIFFUSIVITY.high:g} mm²/s; red left-right, green front-back, blue up-down"
    right = "front to the right in sagittal views; the subject's right is on the right in the others"
    caption = [line for line in (scale, right, *remark.splitlines()) if line]
    figure = _new_figure(len(panels), len(PLANES), caption="\n".join(caption))
    grid = figure.subplots(len(PLANES), len(panels), squeeze=False)
    box = [slice(int(at.min()), int(at.max()) + 1) for at in np.nonzero(mask)]
    for row, (plane, axis) in enumerate(PLANES):
        across, up = (other for other in range(3) if other != axis)
        cut: list[int | slice] = [*box]
        cut[axis] = int(np.median(np.nonzero(mask)[axis]))
        for column, panel in enumerate(panels):
            axes = grid[row, column]
            drawn = _draw_slice(axes, panel, tuple(cut), aspect=voxel_size[up] / voxel_size[across])
            if row == 0:
                axes.set_title(panel.title, color="white", fontsize=9)
            if column == 0:
                axes.set_ylabel(plane, color="white", fontsize=9)
                _draw_edges(axes, EDGES[plane])
            if row == len(PLANES) - 1 and panel.unit is not None:
                _draw_colour_bar(figure, drawn, panel)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DOTS_PER_INCH, facecolor="black")
    return stream.getvalue()


def _draw_slice(axes: Any, panel: Panel, cut: tuple[int | slice, ...], *, aspect: float) -> Any:
    picture = np.clip(np.swapaxes(panel.image[cut], 0, 1) / panel.brightest, 0, 1)
    axes.set(xticks=[], yticks=[], facecolor="black")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes.imshow(picture, cmap=panel.colours, vmin=0, vmax=1, origin="lower", aspect=aspect)


def _draw_edges(axes: Any, letters: str) -> None:
    for letter, place in zip(letters, (0.01, 0.99), strict=True):
        side = "left" if place < 0.5 else "right"
        axes.text(place, 0.02, letter, transform=axes.transAxes, color=EDGE_COLOUR, fontsize=8, ha=side, va="bottom")


def _draw_colour_bar(figure: Any, drawn: Any, panel: Panel) -> None:
    """Under the last slice: 0, half and the brightest value. An inset, so that the column stays in line with others."""
    inset = drawn.axes.inset_axes((0.1, -0.1, 0.8, 0.05))
    bar = figure.colorbar(drawn, cax=inset, orientation="horizontal")
    bar.set_ticks([0, 0.5, 1], labels=[f"{share * panel.brightest:g}{panel.unit}" for share in (0, 0.5, 1)])
    bar.ax.tick_params(colors="0.7", labelsize=7, length=2)
    bar.outline.set_visible(False)


def _new_figure(columns: int, rows: int, *, caption: str) -> Any:
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ToolError(NO_PICTURES) from error
    below = INCHES_PER_LINE * (1 + caption.count("\n")) + 0.08
    width, height = columns * INCHES_PER_PANEL, rows * INCHES_PER_PANEL + below + 0.35
    layout = ConstrainedLayoutEngine(rect=(0, below / height, 1, 1 - below / height))
    figure = Figure(figsize=(width, height), layout=layout)
    figure.text(0.5, 0.04 / height, caption, color="0.7", fontsize=7, ha="center", va="bottom")
    return figure
