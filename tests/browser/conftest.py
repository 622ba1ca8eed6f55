"""A real browser for pages: Debian's Chromium without a screen, driven by Playwright.

``page`` watches itself: a console error, an uncaught exception or a request that leaves the machine fails the test.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
"""WebGL in software: the same pixels with and without a graphics card."""
NAMES = ("chromium", "chromium-browser", "google-chrome")
LAPTOP = {"width": 1280, "height": 720}
PATIENCE_MS = 60_000
"""WebGL in software on a busy machine takes its time."""
LOCAL = ("127.0.0.1", "localhost", "")


def find_browser() -> str | None:
    """The browser on this machine; ``TENSORLDM_BROWSER`` names another."""
    return os.environ.get("TENSORLDM_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = find_browser()
    if executable is None:
        pytest.skip("no browser: install Debian's chromium to test the pages")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=executable, args=FLAGS)
        yield launched
        launched.close()


@dataclass
class Watch:
    """What a page did that it should not."""

    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Parts of errors that a test provokes on purpose."""

    def follow(self, page) -> None:
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._see(request.url))

    def _see(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in LOCAL:
            self.outside.append(url)

    @property
    def unexpected(self) -> list[str]:
        return [error for error in self.errors if not any(part in error for part in self.expected)]


@pytest.fixture
def watch() -> Watch:
    return Watch()


@contextmanager
def open_page(browser, watch: Watch) -> Iterator:
    context = browser.new_context(viewport=LAPTOP, accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    watch.follow(opened)
    yield opened
    context.close()
    assert not watch.unexpected, f"console errors: {watch.unexpected}"
    assert not watch.outside, f"requests to elsewhere: {watch.outside}"


@pytest.fixture
def page(browser, watch) -> Iterator:
    with open_page(browser, watch) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_page(browser) -> Iterator:
    """One page for the tests of a module: starting WebGL in software takes seconds."""
    with open_page(browser, Watch()) as opened:
        yield opened


@pytest.fixture
def look(tmp_path) -> Path:
    """Folder for pictures of pages; ``TENSORLDM_PICTURES`` keeps them for the eye."""
    folder = Path(os.environ.get("TENSORLDM_PICTURES", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
