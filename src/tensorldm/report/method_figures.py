"""Figures like the paper's: maps or components of all methods in a row, errors below, the same detail magnified.

One slice through the middle of the brain, the same for every method. Components and colours are in scanner axes.
Pictures are PNG or SVG, by the file's name.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy import ndarray
from torch import Tensor

from tensorldm.dti.maps import fractional_anisotropy, radial_diffusivity
from tensorldm.errors import DataError, ToolError
from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.imaging.atomic import write_bytes
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.nifti import read_mask
from tensorldm.imaging.tensor_files import read_tensor
from tensorldm.imaging.volume import Space
from tensorldm.report.colours import DIFFUSIVITY, NO_PICTURES, paint
from tensorldm.report.compare_fields import DIFFUSIVITY_ERROR, QUANTITIES, Quantity
from tensorldm.report.insets import Inset, choose_inset
from tensorldm.report.slices import Cuts, cuts_at
from tensorldm.shapes import MaskImage

INCHES_WIDE: Final = 1.7
INCHES_LABEL: Final = 0.3
DOTS_PER_INCH: Final = 120
INSET_SHARE: Final = 0.38
"""Of a picture's sides that the magnified detail takes, in the corner that is farthest from where it lies."""
FORMATS: Final = (".png", ".svg")
_BY_KEY: Final = {quantity.key: quantity for quantity in QUANTITIES}
_RD = Quantity(
    "rd",
    "RD",
    radial_diffusivity,
    DIFFUSIVITY,
    lambda reference, prediction: radial_diffusivity(prediction) - radial_diffusivity(reference),
    "minus reference",
    DIFFUSIVITY_ERROR,
    "RD",
)
MAPS: Final = (_BY_KEY["md"], _RD, _BY_KEY["fa"], _BY_KEY["colour-fa"])
COMPONENTS: Final = tuple(quantity for quantity in QUANTITIES if quantity.key.startswith("D"))


@dataclass(frozen=True, eq=False)
class MethodFields:
    """The tensors of several methods inside one mask; scanner axes, mm²/s, by name, the reference first."""

    subject: str
    space: Space
    mask: MaskImage
    fields: Mapping[str, Float[Tensor, "v 6"]]

    def scatter(self, values: Float[Tensor, "v *n"]) -> Float[ndarray, "x y z *n"]:
        """On the grid, not a number outside the mask."""
        image = np.full((*self.mask.shape, *values.shape[1:]), np.nan, dtype=np.float32)
        image[self.mask] = values.numpy()
        return image


def read_fields(reference: Path, predictions: Mapping[str, Path], *, mask: Path, subject: str) -> MethodFields:
    """Tensors of one subject by method, the reference first; all on the mask's grid."""
    inside, space = read_mask(mask)
    fields = {}
    for name, path in {REFERENCE: reference, **predictions}.items():
        image = read_tensor(path)
        if not image.space.same_grid(space):
            raise DataError(f"{path}: not on the grid of {mask}. Give tensors of one subject and its mask.")
        fields[name] = torch.from_numpy(tensor_to_frame(image.data[inside].astype(np.float64), space, target="scanner"))
    return MethodFields(subject, space, inside, fields)


def draw_methods(path: Path, methods: MethodFields, *, quantities: Sequence[Quantity], plane: str) -> None:
    """Two rows for each quantity: what every method shows, and how far it is from the reference."""
    cuts = middle_cuts(methods)
    inset = magnified(methods, cuts, plane)
    names = list(methods.fields)
    figure = _new_figure(len(names), 2 * len(quantities), shape=cuts.size_mm(plane))
    grid = figure.subplots(2 * len(quantities), len(names), squeeze=False)
    for number, quantity in enumerate(quantities):
        for column, name in enumerate(names):
            shown, error = grid[2 * number, column], grid[2 * number + 1, column]
            _draw(shown, _value(quantity, methods, name, cuts, plane), inset, cuts.size_mm(plane))
            if name == REFERENCE:
                error.set_axis_off()
            else:
                _draw(error, _error(quantity, methods, name, cuts, plane), inset, cuts.size_mm(plane))
            if number == 0:
                shown.set_title(name, color="white", fontsize=8)
        label(grid[2 * number, 0], quantity.title.partition(" and ")[0])
        label(grid[2 * number + 1, 1], _error_words(quantity)) if len(names) > 1 else None
    write_figure(path, figure)


def middle_cuts(methods: MethodFields) -> Cuts:
    """One slice per plane through the middle of the brain."""
    empty = cuts_at(methods.space, methods.mask, point=(0, 0, 0))
    x, y, z = (int(np.median(at)) for at in np.nonzero(empty.ras.forward_mask(methods.mask)))
    return cuts_at(methods.space, methods.mask, point=(x, y, z))


def magnified(methods: MethodFields, cuts: Cuts, plane: str) -> Inset:
    """The detail where the reference is most anisotropic."""
    fa = methods.scatter(fractional_anisotropy(methods.fields[REFERENCE]))
    return choose_inset(cuts.row(fa, plane), size_mm=cuts.size_mm(plane))


def write_figure(path: Path, figure: Any) -> None:
    """Save a figure whole or not at all, in the format of its name."""
    if path.suffix not in FORMATS:
        raise DataError(f"{path}: a picture's name ends in {' or '.join(FORMATS)}. Choose one of them.")
    stream = io.BytesIO()
    figure.savefig(stream, format=path.suffix[1:], dpi=DOTS_PER_INCH, facecolor=figure.get_facecolor())
    write_bytes(path, stream.getvalue())


def new_figure(width: float, height: float, *, colour: str) -> Any:
    """An empty figure; matplotlib is an extra, and whoever lacks it is told."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ToolError(NO_PICTURES) from error
    return Figure(figsize=(width, height), layout="constrained", facecolor=colour)


def label(axes: Any, words: str) -> None:
    """Words at the left of a row."""
    axes.set_ylabel(words, color="white", fontsize=7)


def _value(quantity: Quantity, methods: MethodFields, name: str, cuts: Cuts, plane: str) -> UInt8[ndarray, "h w 3"]:
    assert quantity.value is not None, "maps and components can be drawn"
    image = methods.scatter(quantity.value(methods.fields[name]))
    return paint(cuts.row(image, plane), quantity.scale)


def _error(quantity: Quantity, methods: MethodFields, name: str, cuts: Cuts, plane: str) -> UInt8[ndarray, "h w 3"]:
    image = methods.scatter(quantity.error(methods.fields[REFERENCE], methods.fields[name]))
    return paint(cuts.row(image, plane), quantity.error_scale)


def _error_words(quantity: Quantity) -> str:
    low, _, high = quantity.error_scale.ticks()
    return f"error, {low} to {high} {quantity.error_scale.unit}".strip()


def _draw(axes: Any, picture: UInt8[ndarray, "h w 3"], inset: Inset, size_mm: tuple[float, float]) -> None:
    from matplotlib.patches import Rectangle

    rows, columns = picture.shape[:2]
    aspect = (size_mm[1] / rows) / (size_mm[0] / columns)
    plain(axes).imshow(picture, aspect=aspect, interpolation="nearest")
    corner = (inset.left - 0.5, inset.top - 0.5)
    axes.add_patch(Rectangle(corner, inset.width, inset.height, fill=False, edgecolor="white", linewidth=0.6))
    detail: Float[ndarray, "a b rgb"] = inset.of(picture.astype(np.float32)) / 255
    corner_axes = plain(axes.inset_axes((*_far_corner(inset, rows, columns), INSET_SHARE, INSET_SHARE)))
    corner_axes.imshow(detail, aspect="auto", interpolation="nearest")
    for spine in corner_axes.spines.values():
        spine.set(visible=True, color="white", linewidth=0.6)


def _far_corner(inset: Inset, rows: int, columns: int) -> tuple[float, float]:
    """Left and lower edge, as shares of the picture, of the corner that hides least of the detail's surroundings."""
    is_left = inset.left + inset.width / 2 < columns / 2
    is_upper = inset.top + inset.height / 2 < rows / 2
    return (1 - INSET_SHARE if is_left else 0.0, 0.0 if is_upper else 1 - INSET_SHARE)


def plain(axes: Any) -> Any:
    """Axes without ticks or frame, on black."""
    axes.set(xticks=[], yticks=[], facecolor="black")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _new_figure(columns: int, rows: int, *, shape: tuple[float, float]) -> Any:
    width, height = shape
    wide = columns * INCHES_WIDE + INCHES_LABEL
    return new_figure(wide, rows * INCHES_WIDE * height / width + INCHES_LABEL, colour="black")
