"""Pictures of a tensor field for the eye: three planes of b=0, FA, MD and colour FA, methods side by side.

Matplotlib is an extra (``report``); without it everything else works, and whoever asks for a picture is told.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
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
from tensorldm.shapes import Image, MaskImage

HIGHEST_MD_MM2_PER_S = 2e-3  # tissue fills the grey scale, and CSF is white
B0_PERCENTILE = 99.0
INCHES_PER_PANEL = 1.9
DOTS_PER_INCH = 110
PLANES = (("sagittal", 0), ("coronal", 1), ("axial", 2))


@dataclass(frozen=True, eq=False)
class Panel:
    """One column of the picture: a map in RAS order, and the value that is shown brightest."""

    title: str
    image: Float[ndarray, "x y z *rgb"]
    brightest: float


def draw_overview(
    path: Path,
    b0: Image,
    *,
    tensors: Mapping[str, Float[ndarray, "x y z 6"]],
    space: Space,
    mask: MaskImage,
) -> None:
    """Draw b=0, then FA, MD and colour FA of every tensor (image axes, mm²/s) beside each other, in three planes."""
    ras = to_ras(space)
    inside = ras.forward_mask(mask)
    panels = [Panel("b=0", ras.forward(b0), float(np.percentile(b0[mask], B0_PERCENTILE)))]
    maps = {
        name: [Panel(p.title, ras.forward(p.image), p.brightest) for p in _map_panels(name, field, space, mask)]
        for name, field in tensors.items()
    }
    panels += [panel for same_map in zip(*maps.values(), strict=True) for panel in same_map]
    write_bytes(path, _render(panels, inside, ras.target.voxel_size))


def _map_panels(name: str, packed: Float[ndarray, "x y z 6"], space: Space, mask: MaskImage) -> list[Panel]:
    """FA, MD and colour FA of one tensor; colours in scanner axes, so that red is left-right on every grid."""
    inside = torch.from_numpy(tensor_to_frame(packed[mask].astype(np.float64), space, target="scanner"))

    def image(values: torch.Tensor) -> Float[ndarray, "x y z *rgb"]:
        whole = np.zeros((*mask.shape, *values.shape[1:]), dtype=np.float32)
        whole[mask] = values.numpy()
        return whole

    return [
        Panel(f"FA\n{name}", image(fractional_anisotropy(inside)), 1.0),
        Panel(f"MD\n{name}", image(mean_diffusivity(inside)), HIGHEST_MD_MM2_PER_S),
        Panel(f"colour FA\n{name}", image(colour_fa(inside)), 1.0),
    ]


def _render(panels: list[Panel], mask: MaskImage, voxel_size: tuple[float, float, float]) -> bytes:
    """The picture as PNG: a row per plane through the middle of the mask, a column per panel."""
    figure = _new_figure(len(panels), len(PLANES))
    grid = figure.subplots(len(PLANES), len(panels), squeeze=False)
    box = [slice(int(at.min()), int(at.max()) + 1) for at in np.nonzero(mask)]
    for row, (plane, axis) in enumerate(PLANES):
        across, up = (other for other in range(3) if other != axis)
        aspect = voxel_size[up] / voxel_size[across]
        where = int(np.median(np.nonzero(mask)[axis]))
        for column, panel in enumerate(panels):
            cut: list[int | slice] = [*box]
            cut[axis] = where
            picture = np.swapaxes(panel.image[tuple(cut)], 0, 1)
            axes = grid[row, column]
            axes.imshow(
                np.clip(picture / panel.brightest, 0, 1), cmap="gray", vmin=0, vmax=1, origin="lower", aspect=aspect
            )
            axes.set(xticks=[], yticks=[])
            for spine in axes.spines.values():
                spine.set_visible(False)
            if row == 0:
                axes.set_title(panel.title, color="white", fontsize=9)
            if column == 0:
                axes.set_ylabel(plane, color="white", fontsize=9)
    right = "front to the right in sagittal views; the subject's right is on the right in the others"
    scale = f"FA 0 to 1, MD 0 to {HIGHEST_MD_MM2_PER_S:g} mm²/s; red left-right, green front-back, blue up-down"
    figure.text(0.5, 0.008, f"{scale}; {right}", color="0.7", fontsize=7, ha="center", va="bottom")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=DOTS_PER_INCH, facecolor="black")
    return stream.getvalue()


def _new_figure(columns: int, rows: int) -> Any:
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ToolError(
            "No picture was drawn: matplotlib is not installed. Install it with pip install 'tensorldm[report]'."
        ) from error
    size = (columns * INCHES_PER_PANEL, rows * INCHES_PER_PANEL + 0.4)
    return Figure(figsize=size, layout=ConstrainedLayoutEngine(rect=(0, 0.03, 1, 0.97)))
