"""HTML that its contents cannot break: every text is escaped, only markup that was made here is not.

Names, paths and warnings come from files that anybody may have written; a page must show them and never obey them.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

VOID: Final = frozenset({"br", "img", "input", "meta", "circle", "line", "path", "rect", "ellipse", "polyline"})
"""Elements without content; the last ones are SVG's, closed by a slash."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Iterable[str] | None
"""A text, several, or nothing."""
Attribute = str | int | float | bool | None


def tag(element: str, *children: Child, **attributes: Attribute) -> Markup:
    """An element; ``class_`` stands for class, ``aria_label`` for aria-label, None and False leave an attribute out."""
    opening = "".join([element, *(_attribute(name, value) for name, value in attributes.items())])
    if element in VOID:
        assert not children, f"{element} has no content"
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{joined(children)}</{element}>")


def joined(children: Iterable[Child]) -> Markup:
    """Texts one after the other, each escaped unless it is markup."""
    return Markup("".join(_text(child) for child in children))


def table(header: Iterable[Child], lines: Iterable[Iterable[Child]], *, caption: str) -> Markup:
    """A plain table, the first cell of each line its heading."""
    head = tag("tr", [tag("th", cell, scope="col") for cell in header])
    body = [
        tag(
            "tr",
            [tag("th" if at == 0 else "td", cell, scope="row" if at == 0 else None) for at, cell in enumerate(line)],
        )
        for line in lines
    ]
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return child if isinstance(child, Markup) else escape(child)
    return joined(child)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.removesuffix("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
