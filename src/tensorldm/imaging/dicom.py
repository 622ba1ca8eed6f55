"""DICOM folders to NIfTI series through dcm2niix; beside the tracking commands the only place that starts a process."""

import shutil
import subprocess
from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path

from tensorldm.errors import DataError, ToolError
from tensorldm.imaging.header import SUFFIXES

PREAMBLE_BYTES, MAGIC = 128, b"DICM"
FILES_LOOKED_AT = 200
LONGEST_SECONDS = 3600


def convert_dicom(sources: Sequence[Path], into: Path) -> list[Path]:
    """The sources, each DICOM folder replaced by its diffusion series, converted into a folder below ``into``."""
    converted: list[Path] = []
    for index, source in enumerate(sources):
        converted += _convert(source, into / str(index)) if is_dicom_folder(source) else [source]
    return converted


def is_dicom_folder(folder: Path) -> bool:
    """Whether a folder holds DICOM files and no NIfTI ones; a few hundred names are looked at."""
    if not folder.is_dir():
        return False
    paths = [path for path in islice(folder.rglob("*"), FILES_LOOKED_AT) if path.is_file()]
    return not any(path.name.endswith(SUFFIXES) for path in paths) and any(_is_dicom(path) for path in paths)


def _is_dicom(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(PREAMBLE_BYTES + len(MAGIC))[PREAMBLE_BYTES:] == MAGIC
    except OSError:
        return False


def _convert(folder: Path, into: Path) -> list[Path]:
    into.mkdir(parents=True)
    command = [_program(folder), "-z", "y", "-b", "y", "-f", "%p_%s", "-o", str(into), str(folder)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{folder}: dcm2niix could not be run ({error}). Convert the folder yourself.") from error
    series = sorted(path for path in into.glob("*.nii.gz") if path.with_name(f"{path.name[:-7]}.bval").is_file())
    if series:
        return series
    if answer.returncode:
        last = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1:]
        raise ToolError(f"{folder}: dcm2niix failed ({' '.join(last)}). Convert the folder yourself.")
    raise DataError(f"{folder}: no diffusion series among its DICOM files. Give the folder of the diffusion scan.")


def _program(folder: Path) -> str:
    """The PyPI package's own program, else one on the path."""
    try:
        found = getattr(import_module("dcm2niix"), "bin", None)
    except ImportError:
        found = shutil.which("dcm2niix")
    if not found:
        raise ToolError(
            f"{folder}: a DICOM folder needs dcm2niix. Install it with: pip install 'tensorldm[dicom]', or give NIfTI."
        )
    return str(found)
