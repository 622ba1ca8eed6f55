"""Files that were dropped into the page: in a temporary folder, under names of our own, with limits on their size."""

import shutil
from dataclasses import dataclass, field
from io import BufferedIOBase
from pathlib import Path
from typing import Final

from tensorldm.errors import DataError
from tensorldm.reconstruct.guard import FORCE
from tensorldm.reconstruct.inputs import InputFiles

MIB: Final = 2**20
LARGEST_BYTES: Final = {"image": 2048 * MIB, "mask": 256 * MIB, "bval": MIB, "bvec": MIB}
"""What may be dropped, and how much of it. HCP's whole series is 1.3 GB."""
GZIP_MAGIC: Final = b"\x1f\x8b"
SPARE_DISK_BYTES: Final = 1024 * MIB
CHUNK_BYTES: Final = MIB
LONGEST_NAME: Final = 80


@dataclass
class Inbox:
    """The files of one scan."""

    folder: Path
    names: dict[str, str] = field(default_factory=dict)
    """What the user calls the file of each kind; only ever shown, never opened."""
    paths: dict[str, Path] = field(default_factory=dict)

    def receive(self, kind: str, stream: BufferedIOBase, *, size: int, name: str) -> None:
        """Store a file that is ``size`` bytes long; replaces an earlier one of its kind."""
        self.check_size(kind, size)
        self.folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(self.folder).free < size + SPARE_DISK_BYTES:
            raise DataError(f"{_shown_name(name)}: no room for it in the temporary folder. Free space on that disk.")
        part = self.folder / f"{kind}.part"
        try:
            start = _copy(stream, part, size)
            target = self.folder / _file_name(kind, start)
            self.remove(kind)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        self.paths[kind], self.names[kind] = target, _shown_name(name)

    def check_size(self, kind: str, size: int) -> None:
        """Refuse an empty file, or one over the limit, before a byte is read."""
        if size < 1:
            raise DataError("The file is empty. Export it again.")
        if size > LARGEST_BYTES[kind]:
            raise DataError(
                f"The file has {size / MIB:.0f} MiB, over the page's limit of {LARGEST_BYTES[kind] // MIB}. "
                "Use `tensorldm reconstruct` in a terminal, which has no such limit."
            )

    def remove(self, kind: str) -> None:
        """Forget the file of a kind."""
        path = self.paths.pop(kind, None)
        self.names.pop(kind, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget everything."""
        for kind in tuple(self.paths):
            self.remove(kind)

    def scan(self) -> InputFiles:
        """The files as a scan to reconstruct; says what is missing."""
        missing = [word for kind, word in _NEEDED.items() if kind not in self.paths]
        if missing:
            raise DataError(f"Still missing: {' and '.join(missing)}. Drop the files of one scan together.")
        return InputFiles(
            name="scan",
            images=(self.paths["image"],),
            bval=self.paths["bval"],
            bvec=self.paths["bvec"],
            mask=self.paths.get("mask"),
        )

    def in_users_words(self, message: str) -> str:
        """A message with the user's own file names in place of ours, and without the temporary folder."""
        for kind, path in self.paths.items():
            message = message.replace(str(path), self.names[kind])
        message = message.replace(FORCE, "Tick ‘Go on all the same’ if you want it nevertheless.")
        return message.replace(f"{self.folder}/", "").replace(str(self.folder), "the temporary folder")


_NEEDED: Final = {
    "image": "the diffusion series (.nii or .nii.gz)",
    "bval": "its b-values (.bval)",
    "bvec": "its directions (.bvec)",
}


def _file_name(kind: str, start: bytes) -> str:
    """Chosen here: from the kind, and for images from their first bytes."""
    stem = {"image": "dwi", "bval": "dwi", "bvec": "dwi", "mask": "mask"}[kind]
    if kind in ("bval", "bvec"):
        return f"{stem}.{kind}"
    return f"{stem}.nii.gz" if start.startswith(GZIP_MAGIC) else f"{stem}.nii"


def _copy(stream: BufferedIOBase, path: Path, size: int) -> bytes:
    """Exactly ``size`` bytes into a file; gives the first two."""
    left, start = size, b""
    with path.open("wb") as file:
        while left:
            chunk = stream.read(min(CHUNK_BYTES, left))
            if not chunk:
                raise DataError("The upload broke off. Drop the files again.")
            start = start or chunk[:2]
            file.write(chunk)
            left -= len(chunk)
    return start


def _shown_name(name: str) -> str:
    """The last part of what the browser calls the file, printable and short."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(letter for letter in last if letter.isprintable())[:LONGEST_NAME] or "file"
