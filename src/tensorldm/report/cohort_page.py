"""The page of a cohort: a table that can be sorted, a thumbnail each, outliers named, links to each one's report."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from tensorldm.imaging.atomic import write_text
from tensorldm.report.cohort_members import FIGURES, MEANING, Figure, Member
from tensorldm.report.html import Child, Markup, joined, tag
from tensorldm.report.outliers import FEWEST, OUTLIER_Z, robust_z
from tensorldm.report.page import Section, render_page
from tensorldm.report.pictures import picture

Scores = Mapping[tuple[int, str], float | None]
"""Robust z by a member's place in the list and a figure's key."""


def write_cohort_page(path: Path, members: Sequence[Member], *, failures: Mapping[str, str]) -> None:
    """Write the page; links are relative to it, so that page and folders can move together."""
    write_text(path, cohort_page(members, failures=failures, root=path.absolute().parent))


def cohort_page(members: Sequence[Member], *, failures: Mapping[str, str], root: Path) -> str:
    """The page as text, for a place in the folder ``root``."""
    scores = score(members)
    sections = [
        Section("outliers", "Outliers", _outliers(members, scores)),
        Section("subjects", "Reconstructions", _table(members, scores, root)),
    ]
    if failures:
        words = [tag("li", reason) for reason in failures.values()]
        sections.insert(0, Section("unread", "Could not be read", tag("ul", words, class_="warnings")))
    methods = ", ".join(dict.fromkeys(member.method for member in members))
    count = f"{len(members)} reconstruction{'s' * (len(members) != 1)}"
    return render_page("Cohort", f"{count} by {methods}", sections=sections)


def score(members: Sequence[Member]) -> Scores:
    """Robust z of every figure among the reconstructions of the same method: methods differ by nature."""
    scores: dict[tuple[int, str], float | None] = {}
    for method in dict.fromkeys(member.method for member in members):
        places = [place for place, member in enumerate(members) if member.method == method]
        for figure in FIGURES:
            found = robust_z([_as_written(figure, members[place].figures[figure.key]) for place in places])
            scores |= {(place, figure.key): z for place, z in zip(places, found, strict=True)}
    return scores


def _as_written(figure: Figure, value: float | None) -> float | None:
    """Digits that nobody sees make no outlier."""
    return None if value is None else float(figure.written(value))


def _is_outlier(z: float | None) -> bool:
    return z is not None and abs(z) > OUTLIER_Z


def _outliers(members: Sequence[Member], scores: Scores) -> Markup:
    """Each in a sentence."""
    sentences = [
        tag("li", _sentence(member, figure, scores[place, figure.key]))
        for place, member in enumerate(members)
        for figure in FIGURES
        if _is_outlier(scores[place, figure.key])
    ]
    rule = tag(
        "p",
        "A figure is called an outlier where its robust z-score (by median and median absolute deviation of the same "
        f"method's reconstructions) is beyond ±{OUTLIER_Z:g}. Methods with fewer than {FEWEST} reconstructions are not "
        "judged. An outlier is a reason to look, not to leave out.",
        class_="note-text",
    )
    judged = any(z is not None for z in scores.values())
    none = (
        "No outliers." if judged else f"Nobody is judged: there are fewer than {FEWEST} reconstructions of one method."
    )
    found = tag("ul", sentences, class_="warnings") if sentences else tag("p", none, class_="calm" if judged else None)
    return joined([found, rule])


def _sentence(member: Member, figure: Figure, z: float | None) -> str:
    assert z is not None, "only a judged figure can be an outlier"
    side = "above" if z > 0 else "below"
    found = f"{figure.heading} is {figure.written(member.figures[figure.key])} {figure.unit}".rstrip()
    return f"{member.name}: {found}, {abs(z):.1f} robust deviations {side} the others."


def _table(members: Sequence[Member], scores: Scores, root: Path) -> Markup:
    headings: list[tuple[str, str, str]] = [("subject", "", "text"), ("method", "", "text")]
    headings += [(figure.heading, figure.unit, "number") for figure in FIGURES]
    headings += [("outliers", "", "number"), ("warnings", "", "number")]
    buttons = [
        tag("th", tag("button", heading, type="button", class_="sort"), tag("small", unit), scope="col", data_kind=kind)
        for heading, unit, kind in headings
    ]
    # Behind the name, where nobody sorts by it.
    buttons.insert(1, tag("th", "FA, colour FA", scope="col"))
    lines = [_line(place, member, scores, root) for place, member in enumerate(members)]
    whole = tag(
        "table",
        tag("caption", f"Press a heading to sort by it, again to turn the order round. {MEANING}"),
        tag("thead", tag("tr", buttons)),
        tag("tbody", lines),
        class_="cohort",
    )
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label="Reconstructions")


def _line(place: int, member: Member, scores: Scores, root: Path) -> Markup:
    flagged = [figure for figure in FIGURES if _is_outlier(scores[place, figure.key])]
    name: Child = member.name
    if member.report is not None:
        name = tag("a", member.name, href=quote(Path(os.path.relpath(member.report.absolute(), root)).as_posix()))
    image = picture(member.thumbnail, size_mm=member.size_mm, alt=f"FA and colour FA of {member.name}, axial")
    cells = [
        tag("th", name, scope="row", data_value=member.name),
        tag("td", image, data_value=""),
        tag("td", member.method, class_="text", data_value=member.method),
        *(_cell(member, figure, scores[place, figure.key]) for figure in FIGURES),
        tag("td", str(len(flagged)), data_value=len(flagged), class_="outlier" if flagged else None),
        tag("td", str(len(member.warnings)), data_value=len(member.warnings), title=" ".join(member.warnings) or None),
    ]
    return tag("tr", cells, class_="flagged" if flagged else None)


def _cell(member: Member, figure: Figure, z: float | None) -> Markup:
    value = member.figures[figure.key]
    text = figure.written(value)
    mark = f" {'▲' if (z or 0) > 0 else '▼'}" if _is_outlier(z) else ""
    return tag(
        "td",
        f"{text}{mark}",
        data_value="" if value is None else f"{value:.9g}",
        class_="outlier" if mark else None,
        title=None if z is None else f"robust z {z:+.1f}",
    )
