"""What the server answers: a fixed table of paths. Keys in them are looked up, never joined to a folder."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.resources import files
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from tensorldm import __version__
from tensorldm.errors import DataError
from tensorldm.viewer.inbox import LARGEST_BYTES
from tensorldm.viewer.library import Library
from tensorldm.viewer.workbench import KEY, Workbench

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
BINARY: Final = "application/octet-stream"
MOST_KEYS: Final = 8
MOST_FIELDS: Final = 8


class Refused(Exception):  # noqa: N818  a word for the page, not a failure of ours
    """A request that is not answered."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Asked:
    """A request whose token and origin are good."""

    method: str
    path: str
    """After the token."""
    query: str
    body: BufferedIOBase
    size: int
    name: str
    """What the browser calls an uploaded file, percent-encoded."""


@dataclass(frozen=True)
class Answer:
    """What goes back."""

    content: bytes = b""
    kind: str = BINARY
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    file: Path | None = None
    """Sent in place of the content."""
    body_was_read: bool = False

    @property
    def size(self) -> int:
        """Bytes that are sent."""
        return len(self.content) if self.file is None else self.file.stat().st_size

    @classmethod
    def of(cls, value: Any, *, body_was_read: bool = False) -> "Answer":
        """JSON."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return cls(text.encode(), "application/json", body_was_read=body_was_read)

    @classmethod
    def of_error(cls, status: HTTPStatus, message: str) -> "Answer":
        """A sentence for the page."""
        return cls(json.dumps({"error": message}).encode(), "application/json", status)


def answer(asked: Asked, *, library: Library, bench: Workbench) -> Answer:
    """Find the request in the table."""
    parts = asked.path.split("/")
    if asked.method == "GET":
        found = _static(asked.path or "index.html") or _get(parts, asked, library=library, bench=bench)
    else:
        found = _post(parts, asked, library=library, bench=bench)
    if found is None:
        raise Refused(HTTPStatus.NOT_FOUND, "There is nothing of this name.")
    return found


def _get(parts: list[str], asked: Asked, *, library: Library, bench: Workbench) -> Answer | None:
    match parts:
        case ["api", "scene"]:
            return Answer.of({**library.describe(), "version": __version__, "limits": LARGEST_BYTES})
        case ["api", "volume", key, name] if name.endswith(".nii"):
            content = library.volume(key, name.removesuffix(".nii"))
            return None if content is None else Answer(content)
        case ["api", "tracts", name]:
            tract = library.scene.find_tract(name.partition(".")[0])
            return None if tract is None else Answer(file=tract.path)
        case ["api", "at"]:
            keys, world = _point(asked.query)
            return Answer.of(library.read_out(keys, world))
        case ["api", "job"]:
            return Answer.of(bench.status())
        case ["api", "job", "result.zip"]:
            archive = bench.archive()
            headers = {"Content-Disposition": 'attachment; filename="tensorldm-result.zip"'}
            return None if archive is None else Answer(kind="application/zip", headers=headers, file=archive)
        case _:
            return None


def _post(parts: list[str], asked: Asked, *, library: Library, bench: Workbench) -> Answer | None:
    match parts:
        case ["api", "job", "files", kind] if kind in LARGEST_BYTES:
            bench.receive(kind, asked.body, size=asked.size, name=unquote(asked.name))
            library.forget(KEY)
            return Answer.of(bench.status(), body_was_read=True)
        case ["api", "job", "check"]:
            return Answer.of(bench.check(force=_flag(asked.query, "force")))
        case ["api", "job", "start"]:
            library.forget(KEY)
            bench.start(force=_flag(asked.query, "force"))
        case ["api", "job", "cancel"]:
            bench.cancel()
        case ["api", "job", "discard"]:
            library.forget(KEY)
            bench.discard()
        case _:
            return None
    return Answer.of(bench.status())


def _static(path: str) -> Answer | None:
    """A file of the page, found among the names that the package ships."""
    found = _STATIC.get(path)
    return None if found is None else Answer(found.read_bytes(), KINDS[found.suffix])


def _list_static() -> dict[str, Path]:
    root = Path(str(files("tensorldm"))) / "viewer" / "static"
    return {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in KINDS}


_STATIC: Final = _list_static()


def _point(query: str) -> tuple[list[str], tuple[float, float, float]]:
    """Keys and a point of the world."""
    given = _fields(query)
    try:
        x, y, z = (float(given[axis][0]) for axis in "xyz")
    except (KeyError, ValueError) as error:
        raise DataError("A point has three numbers: x, y and z in mm.") from error
    if not all(math.isfinite(value) for value in (x, y, z)):
        raise DataError("A point has three numbers: x, y and z in mm.")
    return given.get("keys", [""])[0].split(",")[:MOST_KEYS], (x, y, z)


def _flag(query: str, name: str) -> bool:
    return _fields(query).get(name) == ["1"]


def _fields(query: str) -> dict[str, list[str]]:
    try:
        return parse_qs(query, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, "The request asks for too much at once.") from error
