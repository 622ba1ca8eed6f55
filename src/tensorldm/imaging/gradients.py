"""From an image to its gradient table: sidecars by the ecosystem's names, or the files the user names.

Beside `x.nii.gz`: `x.bval` + `x.bvec` (dcm2niix, BIDS), `x.bvals` + `x.bvecs`, `bvals` + `bvecs` or `bval` + `bvec`
(FSL, HCP), `x.b` or `grad.b` (MRtrix3). The first that exists is taken.
"""

from pathlib import Path
from typing import NamedTuple

from tensorldm.errors import DataError
from tensorldm.imaging.gradient_files import read_fsl, read_mrtrix, write_fsl, write_mrtrix
from tensorldm.imaging.gradient_table import GradientTable, Shell
from tensorldm.imaging.header import read_header, stem

__all__ = [
    "FslFiles",
    "GradientTable",
    "Shell",
    "find_gradients",
    "find_json",
    "read_gradients",
    "write_fsl",
    "write_mrtrix",
]


class FslFiles(NamedTuple):
    """FSL's pair of files."""

    bval: Path
    bvec: Path


def find_gradients(image: Path) -> FslFiles | Path:
    """The gradient files beside an image, FSL's pair or MRtrix3's one table; half a pair is refused."""
    folder, name = image.parent, stem(image)
    pairs = [(f"{name}.bval", f"{name}.bvec"), (f"{name}.bvals", f"{name}.bvecs"), ("bvals", "bvecs"), ("bval", "bvec")]
    for bval, bvec in ((folder / a, folder / b) for a, b in pairs):
        if bval.is_file() and bvec.is_file():
            return FslFiles(bval, bvec)
        if bval.is_file() or bvec.is_file():
            found, missing = (bval, bvec) if bval.is_file() else (bvec, bval)
            raise DataError(f"{found} has no {missing.name} beside it. Put the series' other gradient file there.")
    for table in (folder / f"{name}.b", folder / "grad.b"):
        if table.is_file():
            return table
    raise DataError(
        f"{image}: no gradients beside it. Put {name}.bval and {name}.bvec there, or name the files with the command."
    )


def find_json(image: Path) -> Path | None:
    """The JSON sidecar beside an image, if there is one."""
    beside = image.parent / f"{stem(image)}.json"
    return beside if beside.is_file() else None


def read_gradients(
    image: Path, *, bval: Path | None = None, bvec: Path | None = None, grad: Path | None = None
) -> GradientTable:
    """The gradient table of a series in its image axes, one row per volume.

    Without names the files beside the image are taken. ``grad`` is an MRtrix3 table, as its `-grad` option takes.
    """
    if grad is not None and (bval is not None or bvec is not None):
        raise DataError(f"{grad}: gradients given twice, as an MRtrix3 table and as bval/bvec. Give one of the two.")
    space, shape = read_header(image)
    if bval is not None and bvec is not None:
        files: FslFiles | Path = FslFiles(bval, bvec)
    elif bval is not None or bvec is not None:
        raise DataError(f"{bval or bvec}: only one of bval and bvec is given. Give both files.")
    else:
        files = grad or find_gradients(image)
    if isinstance(files, Path):
        source, table = files, read_mrtrix(files, space=space)
    else:
        source, table = files.bval, read_fsl(files.bval, files.bvec, space=space)
    if len(shape) != 4:
        raise DataError(f"{image}: a {len(shape)}D image, expected a 4D series of one volume per gradient.")
    if shape[3] != len(table):
        raise DataError(
            f"{image}: {shape[3]} volumes but {len(table)} gradients in {source}. Give the gradients of this series."
        )
    return table
