"""TRX tractograms: a plain zip of arrays with a JSON header, which viewers map into memory.

Written here without trx-python, which is an extra: the format is three members of a zip file. Points are float32.
"""

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import numpy as np

from tensorldm.imaging.atomic import writing
from tensorldm.imaging.volume import Space
from tensorldm.tracts.streamlines import Streamlines

TIMESTAMP: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can hold: the same streamlines give the same bytes."""


def write_trx(path: Path, streamlines: Streamlines, *, space: Space) -> None:
    """Write streamlines whole or not at all; ``space`` is the grid that viewers show them on."""
    header = {
        "DIMENSIONS": list(space.shape),
        "VOXEL_TO_RASMM": space.affine.tolist(),
        "NB_VERTICES": len(streamlines.points),
        "NB_STREAMLINES": len(streamlines),
    }
    with writing(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        with _member(archive, "header.json") as member:
            member.write(json.dumps(header).encode())
        with _member(archive, "positions.3.float32") as member:
            member.write(np.ascontiguousarray(streamlines.points, dtype="<f4").data)
        with _member(archive, "offsets.uint64") as member:
            member.write(streamlines.offsets.astype("<u8").data)


@contextmanager
def _member(archive: zipfile.ZipFile, name: str) -> Iterator[IO[bytes]]:
    with archive.open(zipfile.ZipInfo(name, TIMESTAMP), "w", force_zip64=True) as member:
        yield member
