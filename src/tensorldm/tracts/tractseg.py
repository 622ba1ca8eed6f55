"""Bundle masks by TractSeg, for who has it: run once on the reference's peaks, its masks kept for every method.

TractSeg takes an image of three peaks in a voxel, nine numbers. A tensor has one direction, so the first peak is v1
with the FA as its length and the others are nothing [choice: tractseg-peaks]. TractSeg mirrors images to the
orientation that it was trained in but does not permute them, so it gets the voxels in RAS order and the peaks in these
axes.
"""

import hashlib
import json
import logging
import re
import secrets
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm import __version__, bounded
from tensorldm.errors import DataError, DataWarning, ToolError
from tensorldm.imaging.atomic import write_json
from tensorldm.imaging.header import SUFFIXES, stem
from tensorldm.imaging.nifti import read_mask, write_volume
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.volume import Volume
from tensorldm.tracts.bundle_masks import ENDINGS, SEGMENTATIONS
from tensorldm.tracts.engine import TensorField
from tensorldm.tracts.odf import principal_peak
from tensorldm.tracts.programs import as_typed, ask_version, run_program

LOG: Final = logging.getLogger(__name__)
TRACTSEG: Final = Path("tractseg")
"""What to give instead of a folder of masks, to have TractSeg make them."""
LEAST_VERSION: Final = (1, 6)
"""The first that takes peaks by default and writes a file for each bundle."""
VERSION_SECONDS: Final = 120.0
"""It loads PyTorch to say its version."""
OUTPUTS: Final = {"tract_segmentation": SEGMENTATIONS, "endings_segmentation": ENDINGS}
"""What is asked for, and the folder that TractSeg writes it to."""
INSTALL: Final = "Install TractSeg 1.6 or later (github.com/MIC-DKFZ/TractSeg), or give a folder of bundle masks."
NOTES: Final = "tractseg.json"
MOST_UNEVEN: Final = 1.25
"""The longest side of a voxel over the shortest: TractSeg asks for isotropic voxels."""
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
PARTS_PER_PEAK, PEAKS = 3, 3


@dataclass(frozen=True)
class TractSeg:
    """An installed TractSeg."""

    program: Path
    version: str


def asks_for_tractseg(given: Path) -> bool:
    """Whether a user wants TractSeg started; a folder of that name is a folder."""
    return given == TRACTSEG and not given.is_dir()


def need_tractseg() -> TractSeg:
    """The TractSeg on the path; a ``ToolError`` where there is none, or one that is too old or broken."""
    found = shutil.which("TractSeg")
    if found is None:
        raise ToolError(f"TractSeg is not on the path. {INSTALL}")
    said = ask_version(found, "--version", seconds=VERSION_SECONDS, install=INSTALL)
    version = re.search(r"(\d+)\.(\d+)(?:\.\d+)?", said)
    if version is None:
        raise ToolError(f"{found}: does not say which version it is. {INSTALL}")
    if (int(version[1]), int(version[2])) < LEAST_VERSION:
        raise ToolError(f"{found}: version {version[0]} is too old. {INSTALL}")
    return TractSeg(Path(found), version[0])


def segment_bundles(field: TensorField, folder: Path, *, program: TractSeg, tell: Callable[[str], None]) -> Path:
    """Have TractSeg write masks and endings of all bundles to ``folder``, unless it did so for the same peaks.

    A bundle of which it finds nothing has no file there. The folder appears whole or not at all.
    """
    peaks = tensor_peaks(field)
    fingerprint = _fingerprint(peaks, program)
    if _read_notes(folder / NOTES).get("Fingerprint") == fingerprint:
        return folder
    sides = field.space.voxel_size
    if max(sides) > MOST_UNEVEN * min(sides):
        size = " × ".join(f"{side:.3g}" for side in sides)
        words = f"TractSeg expects isotropic voxels, these are {size} mm: look at its masks before you trust them."
        warnings.warn(words, DataWarning, stacklevel=2)
    beside = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.part")
    try:
        notes = _segment(peaks, beside, program, tell)
        write_json(beside / NOTES, {**notes, "Fingerprint": fingerprint})
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be written ({error.strerror}). Choose a folder that you may write to."
        ) from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def tensor_peaks(field: TensorField) -> Volume:
    """v1 times FA as the first of three peaks, voxels in RAS order and peaks in their axes."""
    ras = to_ras(field.space)
    first = np.zeros((*field.space.shape, PARTS_PER_PEAK), dtype=np.float32)
    first[field.mask] = principal_peak(torch.from_numpy(np.ascontiguousarray(field.packed[field.mask]))).numpy()
    turned: Float[ndarray, "x y z 3"] = ras.forward(first) @ ras.turn.T.astype(np.float32)
    image = np.zeros((*ras.target.shape, PARTS_PER_PEAK * PEAKS), dtype=np.float32)
    image[..., :PARTS_PER_PEAK] = turned
    return Volume(image, ras.target)


def _segment(peaks: Volume, out: Path, program: TractSeg, tell: Callable[[str], None]) -> dict[str, Any]:
    """Both runs of TractSeg, and what to write down about them."""
    image = out / "peaks.nii.gz"
    write_volume(image, peaks)
    commands, nothing = [], []
    for kind, name in OUTPUTS.items():
        tell(f"TractSeg: {kind.replace('_', ' ')}")
        command = [str(program.program), "-i", str(image), "-o", str(out), "--output_type", kind]
        LOG.info("%s", as_typed(command))
        ended = run_program(command, install=INSTALL)
        found = sorted(path for path in (out / name).glob("*") if path.name.endswith(SUFFIXES))
        if ended.code or not found:  # it ends with exit code 0 after most of its own errors
            reason = _reason(ended.words) or f"exit code {ended.code}, no masks"
            raise ToolError(f"TractSeg failed: {reason}. {INSTALL}")
        nothing += [_dropped(path) for path in found if not read_mask(path)[0].any()]
        commands.append(as_typed(["TractSeg", "-i", "peaks.nii.gz", "-o", "tractseg", "--output_type", kind]))
    return {
        "GeneratedBy": {"Name": "tensorldm", "Version": __version__},
        "Program": f"TractSeg {program.version}",
        "Commands": commands,
        "Peaks": "first peak: v1 times FA of the reference tensor; the other two are zero",
        "NothingFoundOf": nothing,
    }


def _dropped(path: Path) -> str:
    """Take an empty mask away: a bundle without one is not looked for."""
    path.unlink()
    return stem(path)


def _fingerprint(peaks: Volume, program: TractSeg) -> str:
    digest = hashlib.sha256(json.dumps([program.version, list(OUTPUTS)]).encode())
    for array in (peaks.data, peaks.space.affine):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _read_notes(path: Path) -> dict[str, Any]:
    try:
        found = bounded.read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(words: str) -> str:
    """TractSeg's own error, or the last thing that Python said, without colours and on one line."""
    lines = [line.strip() for line in COLOURS.sub("", words).splitlines() if line.strip()]
    errors = [line.partition("ERROR")[2].lstrip(": ") for line in lines if "ERROR" in line]
    return (errors or lines or [""])[-1].rstrip(".")
