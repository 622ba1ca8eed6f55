"""Maps as pictures inside a page: voxels stay voxels, losslessly, and the browser stretches them to millimetres."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from tensorldm.errors import ToolError
from tensorldm.report.colours import NO_PICTURES, Scale, bar, paint
from tensorldm.report.html import Markup, tag
from tensorldm.report.slices import PLANES, SIDES, Cuts

EFFORT = 3
"""Of the encoder, 0 to 6: beyond it files shrink by a few per cent and take several times as long."""


@dataclass(frozen=True, eq=False)
class Map:
    """An image worth looking at, and what to know when one does."""

    key: str
    """Its name in the page's addresses."""
    title: str
    image: Float[ndarray, "x y z *rgb"]
    """Not-a-number outside the brain, where black would be a value."""
    scale: Scale | None
    """None: colours from 0 to 1."""
    words: str
    """How to read it."""
    alt: str
    """What somebody who cannot see it should know."""
    legend: Markup | None = None
    """What stands in the place of a bar where there is no scale."""


def figure(shown: Map, cuts: Cuts) -> Markup:
    """A map in rows of slices with its colour bar and words."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", shown.title), tag("p", shown.words)),
        enlargeable([_row(shown, cuts, plane) for plane in PLANES], title=shown.title),
        colour_bar(shown.scale) if shown.scale is not None else shown.legend,
        class_="map",
        id=shown.key,
    )


def enlargeable(content: list[Markup], *, title: str) -> Markup:
    """Content that a click, Enter or Space shows over the whole window."""
    return tag("button", content, type="button", class_="enlarge", title=f"Enlarge {title}")


def picture(rgb: UInt8[ndarray, "h w 3"], *, size_mm: tuple[float, float], alt: str, percent: float = 100) -> Markup:
    """An inlined image, as wide and high as millimetres say."""
    width, height = size_mm
    return tag(
        "img",
        src=encode(rgb),
        alt=alt,
        width=rgb.shape[1],
        height=rgb.shape[0],
        style=f"aspect-ratio: {width:.4g} / {height:.4g}; width: {percent:.4g}%",
    )


def encode(rgb: UInt8[ndarray, "h w 3"]) -> str:
    """A picture as an address that holds it (lossless WebP)."""
    try:
        from PIL import Image
    except ImportError as error:  # matplotlib brings it
        raise ToolError(NO_PICTURES) from error
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(rgb)).save(stream, format="WEBP", lossless=True, quality=60, method=EFFORT)
    return f"data:image/webp;base64,{base64.b64encode(stream.getvalue()).decode()}"


def colour_bar(scale: Scale) -> Markup:
    """From the darkest to the brightest value."""
    low, middle, high = scale.ticks()
    return tag(
        "div",
        tag("span", class_="bar", style=f"background: {bar(scale)}"),
        tag("span", tag("span", low), tag("span", middle), tag("span", high), class_="ticks"),
        tag("span", scale.unit or None, class_="unit"),
        class_="colour-bar",
        role="img",
        aria_label=f"Colours from {low} to {high} {scale.unit}".strip(),
    )


def axes_legend() -> Markup:
    """What the colours of directions mean."""
    words = (("red", "left-right"), ("green", "front-back"), ("blue", "up-down"))
    return tag(
        "div", [tag("span", f"{colour} {way}", class_=f"axis {colour}") for colour, way in words], class_="legend"
    )


def _row(shown: Map, cuts: Cuts, plane: str) -> Markup:
    size = cuts.size_mm(plane)
    widest = max(cuts.size_mm(each)[0] for each in PLANES)
    left, right = SIDES[plane]
    places = [tag("span", f"{place:.0f}".replace("-", "−")) for place in cuts.millimetres(plane)]
    percent = 100 * size[0] / widest
    alt = f"{shown.title}, {plane} slices." + (f" {shown.alt}" if plane == PLANES[0] else "")
    return tag(
        "span",
        tag("span", f"{plane}, {left} on the left, {right} on the right", class_="plane"),
        picture(paint(cuts.row(shown.image, plane), shown.scale), size_mm=size, alt=alt, percent=percent),
        tag("span", places, class_="places", style=f"width: {percent:.4g}%", aria_hidden="true"),
        class_="row",
    )
