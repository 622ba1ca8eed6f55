"""One file that is a whole page: style, script and pictures inside, nothing fetched from anywhere.

The page forbids itself the network (Content-Security-Policy): a browser that opens it asks for nothing else.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from tensorldm import __version__
from tensorldm.report.html import Child, Markup, joined, tag


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading that the contents lead to."""

    key: str
    title: str
    body: Markup

    def markup(self) -> Markup:
        """As it stands in the page."""
        return tag(
            "section",
            tag("h2", self.title, id=f"{self.key}-title"),
            self.body,
            id=self.key,
            aria_labelledby=f"{self.key}-title",
        )


def render_page(title: str, subtitle: str, *, sections: Sequence[Section], controls: Child = None) -> str:
    """The whole document; ``controls`` stand under its title."""
    style, script = (_asset(name) for name in ("report.css", "report.js"))
    contents = tag(
        "nav",
        tag("ul", [tag("li", tag("a", each.title, href=f"#{each.key}")) for each in sections]),
        aria_label="Contents",
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"tensorldm {__version__}"),
        tag("title", title),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "To the contents", href="#main", class_="skip"),
        tag("header", tag("h1", title), tag("p", subtitle, class_="subtitle"), controls),
        contents,
        tag("main", [each.markup() for each in sections], id="main"),
        tag(
            "footer",
            f"tensorldm {__version__}. Research use only: no medical device, not validated for diagnosis or treatment.",
        ),
        tag(
            "dialog",
            tag("button", "Close", type="button", class_="close"),
            tag("div", class_="stage", tabindex=0),
            aria_label="Enlarged picture",
        ),
        tag("script", Markup(script)),
    )
    return joined([Markup("<!DOCTYPE html>\n"), tag("html", head, body, lang="en"), Markup("\n")])


def _policy(script: str) -> str:
    """No address but what is in the file; no script but ours, known by its hash."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _asset(name: str) -> str:
    return (files("tensorldm.report") / "assets" / name).read_text(encoding="utf-8")
