"""The page that compares methods with a reference: maps side by side, errors, magnified insets, and the measures."""

from pathlib import Path
from typing import Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.dti.maps import colour_fa, fractional_anisotropy
from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.measures import LEM, OFF_DIAGONAL_LEM, PSNR, SSIM, TENSOR, V1_MEDIAN
from tensorldm.evaluation.summary import TABLES, Column, describe_anatomies, describe_subjects, format_value, summarise
from tensorldm.evaluation.table import mean_value
from tensorldm.imaging.atomic import write_text
from tensorldm.metrics import ranges
from tensorldm.report.colours import Scale, paint
from tensorldm.report.compare_fields import QUANTITIES, Comparison, Quantity
from tensorldm.report.html import Markup, joined, tag
from tensorldm.report.insets import Inset, choose_inset
from tensorldm.report.page import Section, render_page
from tensorldm.report.pictures import axes_legend, colour_bar, encode, enlargeable, picture
from tensorldm.report.slices import PLANES, Cuts, choose_cuts

HIGHER_IS_BETTER: Final = ("PSNR, dB", "SSIM")
FIGURES: Final = {
    TENSOR: (("LEM", LEM, ".3f", ""), ("off-diagonal LEM", OFF_DIAGONAL_LEM, ".3f", "")),
    PSNR: (("PSNR", PSNR, ".1f", " dB"), ("SSIM", SSIM, ".3f", "")),
}
"""What stands under a method's pictures: of the whole tensor, and of every map."""


def write_compare_page(path: Path, comparison: Comparison) -> None:
    """Write the page."""
    write_text(path, compare_page(comparison))


def compare_page(comparison: Comparison) -> str:
    """The page as text."""
    cuts = choose_cuts(comparison.space, comparison.mask, count=1)
    reference_fa = comparison.scatter(fractional_anisotropy(comparison.fields[REFERENCE]))
    insets = {plane: choose_inset(cuts.row(reference_fa, plane), size_mm=cuts.size_mm(plane)) for plane in PLANES}
    sections = [
        Section("measures", "Measures", _measures(comparison)),
        *(Section(each.key, each.title, _quantity(each, comparison, cuts, insets)) for each in QUANTITIES),
    ]
    names = ", ".join(comparison.methods)
    made = f" ({comparison.reference_method})" if comparison.reference_method else ""
    subtitle = f"{names}, against the reference{made}"
    return render_page(f"Comparison: {comparison.subject}", subtitle, sections=sections, controls=_plane_choice())


def _plane_choice() -> Markup:
    radios = [
        tag(
            "label", tag("input", type="radio", name="plane", data_shows=plane, checked=plane == PLANES[0]), f" {plane}"
        )
        for plane in PLANES
    ]
    return tag("fieldset", tag("legend", "Plane"), radios)


def _measures(comparison: Comparison) -> Markup:
    tables = [_measure_table(comparison, title) for title in TABLES]
    notes = [*describe_subjects(comparison.rows), describe_anatomies(comparison.rows), *ranges.describe()]
    return joined([*tables, tag("ul", [tag("li", note) for note in notes], class_="note-text")])


def _measure_table(comparison: Comparison, title: str) -> Markup:
    """One of `evaluate`'s tables; the best figure of each column is marked where there is a choice."""
    summary = next(each for each in summarise(comparison.rows) if each.title == title)
    best = [_best(comparison, column, title) for column in TABLES[title]]
    head = tag("tr", [tag("th", heading, scope="col") for heading in summary.header])
    lines = []
    for method, *cells in summary.lines:
        marked = [
            tag("td", cell, class_="best" if cell in winner else None, title="best" if cell in winner else None)
            for cell, winner in zip(cells, best, strict=True)
        ]
        lines.append(tag("tr", tag("th", method, scope="row"), marked))
    better = "higher" if title in HIGHER_IS_BETTER else "lower"
    caption = tag("caption", f"{title} ({better} is better)")
    body = tag("table", caption, tag("thead", head), tag("tbody", lines))
    return tag("div", body, class_="scroll", tabindex=0, role="region", aria_label=title)


def _best(comparison: Comparison, column: Column, title: str) -> set[str]:
    """The best figure as it is written, so that equals are marked alike; nothing where there is no choice."""
    found = [
        mean_value(comparison.rows, method=method, quantity=column.quantity, metric=column.metric)
        for method in comparison.methods
    ]
    known = [value for value in found if value is not None and not np.isnan(value)]
    written = {format_value(value, column.form) for value in known}
    if len(written) < 2:
        return set()
    return {format_value(max(known) if title in HIGHER_IS_BETTER else min(known), column.form)}


def _quantity(quantity: Quantity, comparison: Comparison, cuts: Cuts, insets: dict[str, Inset]) -> Markup:
    """One column per method, the reference and the colour bars first."""
    columns = [_reference_column(quantity, comparison, cuts, insets)]
    columns += [_method_column(quantity, comparison, name, cuts, insets) for name in comparison.methods]
    style = f"grid-template-columns: repeat({len(columns)}, minmax(120px, 340px))"
    return tag("div", columns, class_="methods", style=style, tabindex=0, role="region", aria_label=quantity.title)


def _reference_column(quantity: Quantity, comparison: Comparison, cuts: Cuts, insets: dict[str, Inset]) -> Markup:
    parts: list[Markup] = []
    if quantity.value is not None:
        image = comparison.scatter(quantity.value(comparison.fields[REFERENCE]))
        parts += [_views(image, quantity.scale, cuts, insets, f"{quantity.title}, reference")]
        parts.append(axes_legend() if quantity.scale is None else colour_bar(quantity.scale))
    parts += [tag("div", quantity.error_title, class_="part"), colour_bar(quantity.error_scale)]
    return tag("figure", tag("figcaption", REFERENCE), parts)


def _method_column(
    quantity: Quantity, comparison: Comparison, name: str, cuts: Cuts, insets: dict[str, Inset]
) -> Markup:
    reference, prediction = comparison.fields[REFERENCE], comparison.fields[name]
    error = comparison.scatter(quantity.error(reference, prediction))
    parts: list[Markup] = []
    if quantity.value is not None:
        image = comparison.scatter(quantity.value(prediction))
        parts.append(_views(image, quantity.scale, cuts, insets, f"{quantity.title}, {name}"))
    typical = float(np.nanmean(np.abs(error))) / quantity.error_scale.one
    spoken = f"{quantity.title} of {name}, {quantity.error_title}: {typical:.3g} {quantity.error_scale.unit} on average"
    parts.append(tag("div", quantity.error_title, class_="part"))
    parts.append(_views(error, quantity.error_scale, cuts, insets, spoken))
    parts.append(tag("div", _figures(comparison, name, quantity), class_="part"))
    return tag("figure", tag("figcaption", name), parts)


def _views(
    image: Float[ndarray, "x y z *rgb"], scale: Scale | None, cuts: Cuts, insets: dict[str, Inset], alt: str
) -> Markup:
    """The slice of every plane, its magnified part framed, and that part below it."""
    return joined([_view(cuts.row(image, plane), scale, cuts, (plane, insets[plane]), alt) for plane in PLANES])


def _view(
    row: Float[ndarray, "h w *rgb"], scale: Scale | None, cuts: Cuts, where: tuple[str, Inset], alt: str
) -> Markup:
    plane, inset = where
    rgb = paint(row, scale)
    frame = tag("i", style=inset.frame(rgb.shape), aria_hidden="true")
    whole = picture(rgb, size_mm=cuts.size_mm(plane), alt=f"{alt}, {plane} slice")
    part = tag(
        "img", src=encode(paint(inset.of(row), scale)), alt=f"magnified part of it ({plane})", class_="pixelated inset"
    )
    return tag(
        "div",
        enlargeable([tag("span", whole, frame, class_="framed"), part], title=f"{alt}, {plane}"),
        data_plane_of=plane,
    )


def _figures(comparison: Comparison, name: str, quantity: Quantity) -> str:
    """The figures that belong to what is seen."""
    parts = []
    for label, metric, form, unit in FIGURES[TENSOR if quantity.measured == TENSOR else PSNR]:
        value = mean_value(comparison.rows, method=name, quantity=quantity.measured, metric=metric)
        parts.append(f"{label} {format_value(value, form)}{unit}")
    if quantity.value is colour_fa:
        angle = mean_value(comparison.rows, method=name, quantity=TENSOR, metric=V1_MEDIAN)
        parts.append(f"median angle {format_value(angle, '.1f')}°")
    return " · ".join(parts)
