"""Who may talk to the server: a page that it served itself, opened with the address that it printed.

Four locks, each enough against a kind of stranger: the loopback address (other machines), a random token in every path
(other programs and guesses), the Host header (names that an attacker points at the loopback address), Origin and
Sec-Fetch-Site (other pages in the same browser).
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

LOOPBACK: Final = "127.0.0.1"
TOKEN_BYTES: Final = 24
OWN_SITE: Final = ("same-origin", "none")
"""``none`` is an address that the user typed or opened from a terminal."""
OPENING: Final = ("navigate", "document")
"""Mode and destination of a page that opens in a tab of its own."""
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Of every answer: nothing is loaded from elsewhere, nobody may frame the page, nothing stays in the cache."""


@dataclass(frozen=True)
class Access:
    """The one address that is answered."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES))

    @property
    def address(self) -> str:
        """What the user opens."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    def refusal(self, headers: Mapping[str, str], *, changes: bool) -> str | None:
        """Why a request is refused whatever it asks for; ``changes`` says that it would do something.

        Names of headers are in lower case.
        """
        hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}
        if headers.get("host", "") not in hosts:
            return "This server answers to its own address only."
        origin = headers.get("origin")
        if (origin is None and changes) or (origin is not None and origin not in {f"http://{host}" for host in hosts}):
            return "Requests from other pages are refused."
        # A link with the token, clicked in another page's terminal, opens the page; nothing is told to that page.
        opens = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == OPENING and not changes
        if headers.get("sec-fetch-site", "none") not in OWN_SITE and not opens:
            return "Requests from other pages are refused."
        return None

    def path_within(self, path: str) -> str | None:
        """The part of a request's path after the token; None where the token is not the right one."""
        _, given, rest = (*path.split("/", 2), "", "")[:3]
        # Compared in constant time, as bytes: a guess learns nothing from how long a refusal takes.
        return rest if hmac.compare_digest(given.encode(), self.token.encode()) else None
