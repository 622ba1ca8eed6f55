"""Figures like the paper's: maps or components of all methods in a row, errors below, the same detail magnified.

One slice through the middle of the brain, the same for every method. Components and colours are in scanner axes.
Pictures are PNG or SVG, by the file's name.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

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

TILE: Final = 200
"""Width of one brain in pixels."""
GAP: Final = 6
LABEL: Final = 34
"""Pixels above and left of the tiles for words."""
DOTS_PER_INCH: Final = 120
INSET_SHARE: Final = 0.46
"""Of a tile's width that the magnified detail takes, in the corner that is farthest from where it lies."""
FORMATS: Final = (".png", ".svg")
Layout = Literal["constrained", "tight"]
Picture = UInt8[ndarray, "_ _ 3"]
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
    size, inset = cuts.size_mm(plane), magnified(methods, cuts, plane)
    rows: list[list[Picture | None]] = []
    words = []
    for quantity in quantities:
        rows.append([_tile(_value(quantity, methods, name, cuts, plane), inset, size) for name in methods.fields])
        rows.append(
            [
                None if name == REFERENCE else _tile(_error(quantity, methods, name, cuts, plane), inset, size)
                for name in methods.fields
            ]
        )
        words += [quantity.title.partition(" and ")[0], _error_words(quantity)]
    write_figure(path, _labelled(mosaic(rows), rows=words, columns=list(methods.fields)))


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


def new_figure(width: float, height: float, *, colour: str, layout: Layout | None = "constrained") -> Any:
    """An empty figure; matplotlib is an extra, and whoever lacks it is told."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ToolError(NO_PICTURES) from error
    return Figure(figsize=(width, height), layout=layout, facecolor=colour)


def _value(quantity: Quantity, methods: MethodFields, name: str, cuts: Cuts, plane: str) -> Picture:
    assert quantity.value is not None, "maps and components can be drawn"
    image = methods.scatter(quantity.value(methods.fields[name]))
    return paint(cuts.row(image, plane), quantity.scale)


def _error(quantity: Quantity, methods: MethodFields, name: str, cuts: Cuts, plane: str) -> Picture:
    image = methods.scatter(quantity.error(methods.fields[REFERENCE], methods.fields[name]))
    return paint(cuts.row(image, plane), quantity.error_scale)


def _error_words(quantity: Quantity) -> str:
    low, _, high = quantity.error_scale.ticks()
    unit = quantity.error_scale.unit
    return f"error, {low} to {high}{unit}" if len(unit) < 2 else f"error, {low} to {high}\n{unit}"


def mosaic(rows: Sequence[Sequence[Picture | None]]) -> Picture:
    """Tiles of one size beside and below each other, black between them and where there is none."""
    height, width = next(tile.shape[:2] for row in rows for tile in row if tile is not None)
    canvas = np.zeros((len(rows) * (height + GAP) - GAP, len(rows[0]) * (width + GAP) - GAP, 3), dtype=np.uint8)
    for i, row in enumerate(rows):
        for j, tile in enumerate(row):
            if tile is not None:
                top, left = i * (height + GAP), j * (width + GAP)
                canvas[top : top + height, left : left + width] = tile
    return canvas


def _tile(picture: Picture, inset: Inset, size_mm: tuple[float, float]) -> Picture:
    """A slice in the shape it has in the world, with the detail framed and magnified in a corner."""
    height = round(TILE * size_mm[1] / size_mm[0])
    tile = _resized(picture, height, TILE)
    down, right = height / picture.shape[0], TILE / picture.shape[1]
    _frame(
        tile,
        top=round(inset.top * down),
        left=round(inset.left * right),
        height=round(inset.height * down),
        width=round(inset.width * right),
    )
    wide = round(INSET_SHARE * TILE)
    high = min(height, round(wide * (inset.height * down) / (inset.width * right)))
    detail = _resized(inset.of(picture.astype(np.float32)).astype(np.uint8), high, wide)
    _frame(detail, top=0, left=0, height=high, width=wide)
    left_share, is_low = _far_corner(inset, *picture.shape[:2])
    top, left = (height - high if is_low else 0), round(left_share * (TILE - wide))
    tile[top : top + high, left : left + wide] = detail
    return tile


def _resized(picture: Picture, height: int, width: int) -> Picture:
    """Nearest voxels: what was measured, not smoothed."""
    rows = np.arange(height) * picture.shape[0] // height
    columns = np.arange(width) * picture.shape[1] // width
    return np.array(picture[rows[:, None], columns[None, :]])


def _frame(picture: Picture, *, top: int, left: int, height: int, width: int) -> None:
    bottom, right = min(top + height, picture.shape[0]) - 1, min(left + width, picture.shape[1]) - 1
    picture[[top, bottom], left : right + 1] = 255
    picture[top : bottom + 1, [left, right]] = 255


def _far_corner(inset: Inset, rows: int, columns: int) -> tuple[float, bool]:
    """Whether a corner at the left (0) or right (1), and whether one below, hides least around the detail."""
    is_left = inset.left + inset.width / 2 < columns / 2
    is_upper = inset.top + inset.height / 2 < rows / 2
    return (1.0 if is_left else 0.0), is_upper


def _labelled(picture: Picture, *, rows: Sequence[str], columns: Sequence[str]) -> Any:
    height, width = picture.shape[0] + LABEL, picture.shape[1] + LABEL
    figure = new_figure(width / DOTS_PER_INCH, height / DOTS_PER_INCH, colour="black", layout=None)
    axes = figure.add_axes((LABEL / width, 0, picture.shape[1] / width, picture.shape[0] / height))
    plain(axes).imshow(picture, aspect="auto", interpolation="nearest")
    for j, name in enumerate(columns):
        across = (LABEL + (j + 0.5) * (picture.shape[1] + GAP) / len(columns)) / width
        figure.text(across, 1 - 0.5 * LABEL / height, name, color="white", fontsize=8, ha="center", va="center")
    for i, words in enumerate(rows):
        up = 1 - (LABEL + (i + 0.5) * (picture.shape[0] + GAP) / len(rows)) / height
        figure.text(0.5 * LABEL / width, up, words, color="white", fontsize=6.5, ha="center", va="center", rotation=90)
    return figure


def plain(axes: Any) -> Any:
    """Axes without ticks or frame, on black."""
    axes.set(xticks=[], yticks=[], facecolor="black")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes
