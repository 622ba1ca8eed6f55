"""The page about one reconstruction: `report.html` beside its files.

It says nothing that changes from run to run (no date, no duration, no path): the same command gives the same bytes.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tensorldm.imaging.atomic import write_text
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.summary import (
    EXPECTED_FA,
    EXPECTED_MD,
    WHITE_MATTER_FA,
    WHITE_MATTER_MD,
    judged,
    summarise,
)
from tensorldm.report.charts import Axis, histogram
from tensorldm.report.citation import references
from tensorldm.report.details import directions, run_details
from tensorldm.report.html import Child, Markup, joined, tag
from tensorldm.report.method_text import (
    MEASURING_DIRECTIONS,
    NOTHING_ADDED,
    method_name,
    method_text,
    num_weighted,
    white_matter,
)
from tensorldm.report.page import Section, render_page
from tensorldm.report.pictures import Map, figure
from tensorldm.report.result_maps import component_maps, doubt_maps, main_maps
from tensorldm.report.slices import Cuts, choose_cuts

MANY_SLICES: Final = 10
"""Axial ones, of the maps that people look at first, drawn over the whole width."""
FEW_SLICES: Final = 6
MANY_MENDED: Final = 0.05
"""Share of the brain whose tensors had to be mended that is worth a look: noise alone mends one or two per cent."""
FA_AXIS: Final = Axis(0.0, 1.0, "FA")
MD_AXIS: Final = Axis(0.0, 3.2e-3, "MD, 10⁻³ mm²/s", one=1e-3)
NO_SPREAD: Final = (
    "This is a single result, not several samples, so there are no intervals and no cone. "
    "A model that draws samples gives them with two or more."
)
RANGES: Final = (
    f"White matter is taken to be where FA > {WHITE_MATTER_FA} and MD < {WHITE_MATTER_MD * 1e3:g}·10⁻³ mm²/s. Green: "
    "where its medians are expected in healthy adults at b = 1000 s/mm² and voxels of about 2 mm. Full fits of five "
    "real scans from four vendors gave 0.35 to 0.44 for FA and 0.67 to 0.78·10⁻³ mm²/s for MD; published histograms of "
    "the whole brain peak near 0.75·10⁻³ mm²/s (Chun et al., AJNR 2000;21:1078). A glance, not a diagnosis: age, "
    "children and disease are outside."
)


def write_subject_page(path: Path, result: Reconstruction, notes: Mapping[str, Any]) -> None:
    """Write the page; ``notes`` is the sidecar of the tensor."""
    write_text(path, subject_page(result, notes))


def subject_page(result: Reconstruction, notes: Mapping[str, Any]) -> str:
    """The page as text."""
    many, few = (choose_cuts(result.space, result.mask, count=count) for count in (MANY_SLICES, FEW_SLICES))
    name = str(notes.get("Subject", "reconstruction"))
    sections = [
        Section("glance", "At a glance", joined([_cards(result), _warnings(result.warnings)])),
        Section("maps", "Maps", joined([_orientation(), _figures(main_maps(result), many, kind="maps wide")])),
        Section("doubt", "How sure it is", _doubt(result, few)),
        Section("values", "Values", _histograms(result)),
        Section("components", "Components", joined([_axes_words(), _figures(component_maps(result), few)])),
        Section("directions", "Gradient directions", _directions(result, notes)),
        Section("run", "Run details", run_details(result, notes)),
        Section("method", "Method text", _method(result, notes)),
    ]
    subtitle = f"Diffusion tensor from {len(result.volumes)} volumes, by {method_name(notes)}"
    return render_page(name, subtitle, sections=sections)


def _cards(result: Reconstruction) -> Markup:
    summary = summarise("", result)
    cards = []
    if summary.median_fa is not None and summary.median_md is not None:
        low, high = EXPECTED_MD
        md = summary.median_md * 1e3
        cards += [
            _card(
                "Median FA in white matter", f"{summary.median_fa:.2f}", judged(summary.median_fa, EXPECTED_FA, ".2f")
            ),
            _card(
                "Median MD in white matter",
                joined([f"{md:.2f}", tag("small", " ·10⁻³ mm²/s")]),
                judged(md, (1e3 * low, 1e3 * high), ".2f"),
            ),
        ]
    else:
        cards.append(
            _card("White matter", "none", f"no voxel has FA > {WHITE_MATTER_FA} and an MD of tissue", odd=True)
        )
    positive = 1 - result.spd_touched_share
    many = result.spd_touched_share > MANY_MENDED
    cards.append(_card("Positive definite", f"{positive:.2%}", "of brain voxels, as the method gave them", odd=many))
    white = white_matter(result)
    if white.any():
        cards.append(_prior_card(float(np.median(result.extra["prior_share"][white])), num_weighted(result)))
        if "v1_cone" in result.extra:
            cone = float(np.median(result.extra["v1_cone"][white]))
            cards.append(_card("Direction known within", f"{cone:.0f}°", "95 % cone of v1, median there"))
    worst = max(result.angles_degrees)
    cards.append(_card("Directions off the axes", f"up to {worst:.0f}°", "of the three nearest to x, y, z"))
    return tag("div", cards, class_="cards")


def _prior_card(share: float, num_directions: int) -> Markup:
    """How much is the method's: 0 is good news from many directions, and none from three."""
    name = "Anisotropy that nobody measured"
    if num_directions >= MEASURING_DIRECTIONS:
        return _card(name, f"{share:.2f}", f"{num_directions} directions measure the whole tensor")
    if share < NOTHING_ADDED:
        return _card(name, "left out", "the method adds nothing: what the directions do not see is missing")
    return _card(name, f"{share:.2f}", f"share that is the method's, median where FA > {WHITE_MATTER_FA:g}")


def _card(name: str, value: Child, word: str, *, odd: bool = False) -> Markup:
    word = word.strip("()")
    odd = odd or word.startswith(("below", "above"))
    parts = [tag("span", text, class_=kind) for text, kind in ((name, "name"), (value, "value"), (word, "word"))]
    return tag("div", parts, class_="card out" if odd else "card")


def _warnings(words: tuple[str, ...]) -> Markup:
    if not words:
        return tag("p", "No warnings.", class_="calm")
    return tag("ul", [tag("li", word) for word in words], class_="warnings", aria_label="Warnings")


def _orientation() -> Markup:
    return tag(
        "p",
        "Numbers under the slices are millimetres in the scanner's world (x, y or z). The subject's right is on the "
        "right in axial and coronal slices, the front is on the right in sagittal ones. Press a picture to enlarge it.",
        class_="note-text",
    )


def _axes_words() -> Markup:
    words = "In scanner axes: x to the subject's right, y to the front, z to the top."
    return tag("p", words, class_="note-text")


def _figures(maps: Iterator[Map], cuts: Cuts, *, kind: str = "maps") -> Markup:
    return tag("div", [figure(each, cuts) for each in maps], class_=kind)


def _doubt(result: Reconstruction, cuts: Cuts) -> Markup:
    words = None if "v1_cone" in result.extra else tag("p", NO_SPREAD, class_="note-text")
    return joined([words, _figures(doubt_maps(result), cuts)])


def _histograms(result: Reconstruction) -> Markup:
    fa, md = (image[result.mask].astype(np.float64) for image in (result.fa, result.md))
    white = (fa > WHITE_MATTER_FA) & (md < WHITE_MATTER_MD)
    charts = [
        histogram(fa, fa[white], axis=FA_AXIS, expected=EXPECTED_FA, form=".2f", title="FA"),
        histogram(md, md[white], axis=MD_AXIS, expected=EXPECTED_MD, form=".2f", title="MD"),
    ]
    colours = (("--brain", "whole brain"), ("--white", "white matter"), ("--band", "expected median of white matter"))
    key = [tag("span", tag("i", style=f"background: var({colour})"), words) for colour, words in colours]
    return joined(
        [tag("div", charts, class_="side"), tag("div", key, class_="key"), tag("p", RANGES, class_="note-text")]
    )


def _directions(result: Reconstruction, notes: Mapping[str, Any]) -> Markup:
    if "GradientTable" not in notes:
        return tag("p", "The files were written by an earlier version that did not keep the gradient table.")
    return directions(result, notes)


def _method(result: Reconstruction, notes: Mapping[str, Any]) -> Markup:
    cited = [tag("p", f"[{number}] {text}") for number, text in enumerate(references(), start=1)]
    text = tag("div", tag("p", method_text(result, notes)), cited, class_="paste", id="method-text")
    return joined([text, tag("button", "Copy", type="button", class_="copy", data_of="method-text")])
