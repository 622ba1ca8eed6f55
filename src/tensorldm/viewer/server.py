"""The web server: the standard library's, on the loopback address, with a fixed table of what it answers."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, cast
from urllib.parse import urlsplit

from tensorldm.errors import TensorldmError, ToolError
from tensorldm.viewer.access import HEADERS, LOOPBACK, Access
from tensorldm.viewer.library import Library
from tensorldm.viewer.routes import Answer, Asked, Refused, answer
from tensorldm.viewer.scene import Scene
from tensorldm.viewer.workbench import BusyError, Means, Workbench, opened

SECONDS_PER_READ = 60.0
"""A connection that says nothing for this long is closed."""


@dataclass(frozen=True)
class Site:
    """What the server serves."""

    access: Access
    library: Library
    bench: Workbench


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    site: Site

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes a connection early is no error worth a traceback."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float] = SECONDS_PER_READ
    server_version = "tensorldm"
    sys_version = ""

    def do_GET(self) -> None:
        self._respond(changes=False)

    def do_POST(self) -> None:
        self._respond(changes=True)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses hold the token."""

    def _respond(self, *, changes: bool) -> None:
        site = cast(_Server, self.server).site
        try:
            reply = self._answer(site, changes=changes)
        except Refused as refused:
            reply = Answer.of_error(refused.status, str(refused))
        except BusyError as busy:
            reply = Answer.of_error(HTTPStatus.CONFLICT, str(busy))
        except TensorldmError as error:
            reply = Answer.of_error(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        if changes and not reply.body_was_read:
            self.close_connection = True
        self._send(reply)

    def _answer(self, site: Site, *, changes: bool) -> Answer:
        headers = {name.lower(): value for name, value in self.headers.items()}
        refusal = site.access.refusal(headers, changes=changes)
        if refusal is not None:
            raise Refused(HTTPStatus.FORBIDDEN, refusal)
        url = urlsplit(self.path)
        path = site.access.path_within(url.path)
        if path is None:
            raise Refused(HTTPStatus.FORBIDDEN, "Open the address that the program printed, with its token.")
        asked = Asked(self.command, path, url.query, self.rfile, self._size(), self.headers.get("X-File-Name", ""))
        return answer(asked, library=site.library, bench=site.bench)

    def _size(self) -> int:
        """Of the request's body, which must be announced."""
        if "Transfer-Encoding" in self.headers:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "Say how long the file is.")
        given = self.headers.get("Content-Length", "0")
        if not (given.isascii() and given.isdigit()):
            raise Refused(HTTPStatus.BAD_REQUEST, "Say how long the file is.")
        return int(given)

    def _send(self, reply: Answer) -> None:
        self.send_response(reply.status)
        for name, value in {**HEADERS, **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(reply.size))
        self.end_headers()
        if reply.file is None:
            self.wfile.write(reply.content)
        else:
            with reply.file.open("rb") as stream:
                shutil.copyfileobj(stream, self.wfile)


@contextmanager
def serving(scene: Scene, means: Means, *, port: int = 0) -> Iterator[tuple[ThreadingHTTPServer, Access]]:
    """A server that is bound but not running yet; port 0 takes a free one. Its temporary files end with the block."""
    library = Library(scene)
    with opened(means, finished=library.show) as bench:
        try:
            server = _Server((LOOPBACK, port), _Handler)
        except OSError as error:
            raise ToolError(
                f"Port {port} of {LOOPBACK} cannot be used ({error.strerror}). Give another with --port, or none."
            ) from error
        with server:
            access = Access(server.server_address[1])
            server.site = Site(access, library, bench)
            yield server, access
