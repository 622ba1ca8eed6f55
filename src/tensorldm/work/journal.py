"""What has been done, one small file per subject, each written after the subject's own files are in place.

"The same command again" then does only what is missing: an entry that is absent, damaged or about other inputs counts
as not there. Several processes may write to one journal; none reads or changes another's entry.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from tensorldm.config.reading import Strict
from tensorldm.imaging.atomic import write_text

LONGEST_NAME = 150
"""Letters; file systems allow 255 bytes."""

E = TypeVar("E", bound=Strict)


class Journal(Generic[E]):
    """Entries of one kind in one folder."""

    def __init__(self, folder: Path, kind: type[E]) -> None:
        self.folder = folder
        self.kind = kind

    def entry(self, name: str) -> E | None:
        """What is written about a subject, if it is written whole."""
        return self._read(self._path(name))

    def entries(self) -> Iterator[E]:
        """Every entry that is written whole, by file name."""
        for path in sorted(self.folder.glob("[!.]*.json")):
            found = self._read(path)
            if found is not None:
                yield found

    def write(self, name: str, entry: E) -> None:
        """Note a subject, whole or not at all."""
        write_text(self._path(name), entry.model_dump_json(indent=2) + "\n")

    def forget(self, name: str) -> None:
        """Take a subject out, before what was written about it becomes untrue."""
        with suppress(OSError):
            self._path(name).unlink()

    def _read(self, path: Path) -> E | None:
        with suppress(ValidationError, OSError):
            return self.kind.model_validate_json(path.read_bytes())
        return None

    def _path(self, name: str) -> Path:
        """A stranger's name can neither leave the folder nor hide in it."""
        quoted = quote(name, safe="")
        visible = quoted if quoted[:1] not in (".", "") else f"%2E{quoted[1:]}"
        return self.folder / f"{visible[:LONGEST_NAME]}.json"
