"""MRtrix3's track files: a text header, then float32 points with NaN between streamlines and infinity at the end.

Read and joined here rather than through nibabel, which goes through them point by point: a whole brain takes a
fraction of a second, and joining chunks needs no more memory than one of them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from tensorldm.errors import DataError
from tensorldm.imaging.atomic import writing
from tensorldm.tracts.streamlines import Streamlines

MAGIC: Final = "mrtrix tracks"
DATA_TYPES: Final = {"Float32LE": "<f4", "Float32BE": ">f4", "Float64LE": "<f8", "Float64BE": ">f8"}
LARGEST_HEADER_BYTES: Final = 1 << 20
END: Final = np.full((1, 3), np.inf, dtype="<f4")


def write_tck(path: Path, streamlines: Streamlines, *, notes: Mapping[str, str] | None = None) -> None:
    """Write streamlines, whole or not at all."""
    join_tck(path, [streamlines], notes=notes)


def join_tck(path: Path, parts: Sequence[Path | Streamlines], *, notes: Mapping[str, str] | None = None) -> int:
    """Write the streamlines of all parts (files or streamlines) one after the other; returns how many there are."""
    total = sum(len(part) if isinstance(part, Streamlines) else len(read_tck(part)) for part in parts)
    with writing(path) as stream:
        stream.write(_header({**(notes or {}), "count": f"{total:010d}"}))
        for part in parts:
            _write_points(stream, part if isinstance(part, Streamlines) else read_tck(part))
        stream.write(END.tobytes())
    return total


def read_tck(path: Path) -> Streamlines:
    """The streamlines of a file."""
    try:
        with path.open("rb") as stream:
            header = _read_header(stream, path)
            stream.seek(int(header["file"].split()[-1]))
            raw = np.frombuffer(stream.read(), dtype=DATA_TYPES[header["datatype"]])
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise DataError(f"{path}: not readable as a track file ({error}). Give a .tck file of MRtrix3.") from error
    rows = raw[: len(raw) // 3 * 3].reshape(-1, 3)
    ends = np.flatnonzero(np.isinf(rows[:, 0]))
    if not len(ends):
        raise DataError(f"{path}: the track file ends in the middle. Make it again.")
    rows = rows[: ends[0]]
    breaks = np.isnan(rows[:, 0])
    if len(rows) and not breaks[-1]:
        raise DataError(f"{path}: its last streamline has no end. Make the track file again.")
    counts = np.diff(np.flatnonzero(np.concatenate([[True], breaks]))) - 1
    offsets = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return Streamlines(rows[~breaks].astype(np.float32), offsets)


def _write_points(stream: BinaryIO, streamlines: Streamlines) -> None:
    rows = np.full((len(streamlines.points) + len(streamlines), 3), np.nan, dtype="<f4")
    rows[np.arange(len(streamlines.points)) + streamlines.owners] = streamlines.points
    stream.write(rows.tobytes())


def _header(notes: Mapping[str, str]) -> bytes:
    """The offset of the data is part of the header whose length decides it; it is padded to be found in one go."""
    lines = [MAGIC, *(f"{key}: {value}" for key, value in notes.items()), "datatype: Float32LE"]
    before = "\n".join(lines).encode() + b"\nfile: . "
    start = len(before) + len(b"00000000\nEND\n")
    return before + f"{start:08d}\nEND\n".encode()


def _read_header(stream: BinaryIO, path: Path) -> dict[str, str]:
    lines: list[str] = []
    while (line := stream.readline(LARGEST_HEADER_BYTES)).strip() != b"END":
        lines.append(line.decode("utf-8", errors="replace").strip())
        if not line or lines[0] != MAGIC or stream.tell() > LARGEST_HEADER_BYTES:
            raise DataError(f"{path}: not a track file of MRtrix3. Give a .tck file.")
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
