"""Gradient tables as text: FSL's `.bval` and `.bvec`, and MRtrix3's four columns.

A vector's length means different things. FSL's b-values stand as written, and vectors are only directions. In an
MRtrix3 table the b-value is scaled by the vector's squared length, as `mrinfo -dwgrad` does: scanners reach several
b-values with one nominal one and shorter vectors.
"""

import warnings
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm import bounded
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.errors import DataError, DataWarning
from tensorldm.imaging.atomic import write_text
from tensorldm.imaging.gradient_table import GradientTable
from tensorldm.imaging.volume import Space

UNIT_TOLERANCE = 0.01
"""A vector's length may differ from 1 by this before it is worth a word; text files round to a few digits."""

LARGEST_NUMBER = 1e10
"""Far above any b-value, and far below what overflows when it is squared."""


LARGEST_BVAL = 1e6
"""s/mm², ten times what any scanner reaches; in s/m² every b-value is larger."""


def read_fsl(bval: Path, bvec: Path, *, space: Space) -> GradientTable:
    """Read `.bval` and `.bvec`; the vectors may stand in three rows (FSL's way) or in three columns."""
    table, bvecs = _numbers(bval), _numbers(bvec)
    if 3 in table.shape and 1 not in table.shape and 1 in bvecs.shape:
        raise DataError(f"{bval} holds vectors, and {bvec} b-values: the two are exchanged. Give each as the other.")
    bvals = table.ravel()
    _check_bvals(bval, bvals)
    if bvecs.shape == (3, len(bvals)):  # first: three volumes make both readings possible, and rows are FSL's
        bvecs = bvecs.T
    if bvecs.shape != (len(bvals), 3):
        count = bvecs.shape[1] if bvecs.shape[0] == 3 else bvecs.shape[0]
        raise DataError(
            f"{bvec}: {count} vectors (shape {bvecs.shape[0]}×{bvecs.shape[1]}) but {len(bvals)} b-values in {bval}. "
            "Give the two files of one series."
        )
    return GradientTable.from_fsl(bvals, _directions(bvec, bvals, bvecs), space=space)


def read_mrtrix(path: Path, *, space: Space) -> GradientTable:
    """Read MRtrix3's table: per line a vector in world axes and a b-value, scaled by the vector's squared length."""
    table = _numbers(path)
    if table.shape[1] != 4:
        raise DataError(
            f"{path}: {table.shape[1]} columns, expected 4 (x y z b in world axes). Give an MRtrix3 gradient table."
        )
    vectors, nominal = table[:, :3], table[:, 3]
    _check_bvals(path, nominal)
    squared = np.nan_to_num((vectors**2).sum(axis=1))
    bvals = np.where(squared > 0, nominal * squared, nominal)
    lengths = np.where(squared > 0, np.sqrt(squared), 1)[:, None]
    return GradientTable.from_scanner(bvals, _directions(path, bvals, vectors / lengths), space=space)


def write_fsl(bval: Path, bvec: Path, *, gradients: GradientTable, space: Space) -> None:
    """Write `.bval` (one row) and `.bvec` (three rows) in FSL's frame of this grid."""
    write_text(bval, _lines(gradients.bvals[None]))
    write_text(bvec, _lines(gradients.to_fsl(space).T))


def write_mrtrix(path: Path, gradients: GradientTable, *, space: Space) -> None:
    """Write MRtrix3's table: per line a vector in world axes and a b-value."""
    write_text(path, _lines(np.column_stack([gradients.to_scanner(space), gradients.bvals])))


def _numbers(path: Path) -> Float[ndarray, "rows columns"]:
    """A table of numbers; `#` starts a comment, commas and blanks separate."""
    try:
        lines = bounded.read_text(path).splitlines()
        rows = [line.partition("#")[0].replace(",", " ").split() for line in lines]
        numbers = [[float(word) for word in row] for row in rows if row]
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file. Check the path.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a table of numbers ({error}). Give a text file of gradients.") from error
    if not numbers or len({len(row) for row in numbers}) != 1:
        lengths = sorted({len(row) for row in numbers})
        found = f"lines of {lengths[0]} and {lengths[-1]} numbers" if numbers else "no numbers"
        raise DataError(f"{path}: found {found}, expected a full table. Export the gradients again.")
    table = np.array(numbers, dtype=np.float64)
    if (np.abs(table[np.isfinite(table)]) > LARGEST_NUMBER).any():
        raise DataError(f"{path}: a number above {LARGEST_NUMBER:g}, which no gradient has. Export them again.")
    return table


def _check_bvals(path: Path, bvals: Float[ndarray, " n"]) -> None:
    wrong = np.flatnonzero(~np.isfinite(bvals) | (bvals < 0))
    if len(wrong):
        raise DataError(
            f"{path}: the b-value of volume {wrong[0]} is {bvals[wrong[0]]:g}, expected a number of at least 0. "
            "Export the gradients again."
        )
    if len(bvals) and bvals.max() > LARGEST_BVAL:
        raise DataError(
            f"{path}: b-values up to {bvals.max():g}, which is s/m². Divide them by 1000000: s/mm² is expected."
        )


def _directions(path: Path, bvals: Float[ndarray, " n"], vectors: Float[ndarray, "n 3"]) -> Float[ndarray, "n 3"]:
    """Unit vectors: b=0 may have none (zero or NaN), a weighted volume must have one."""
    finite = np.isfinite(vectors).all(axis=1)
    lengths = np.where(finite, np.linalg.norm(np.where(finite[:, None], vectors, 0), axis=1), 0)
    weighted = bvals > B0_MAX_S_PER_MM2
    missing = np.flatnonzero(weighted & (lengths < 1e-3))
    if len(missing):
        raise DataError(
            f"{path}: volume {missing[0]} has b={bvals[missing[0]]:g} s/mm² but no direction "
            f"({' '.join(f'{x:g}' for x in vectors[missing[0]])}). Export the gradients again, or leave the volume out."
        )
    odd = weighted & (np.abs(lengths - 1) > UNIT_TOLERANCE)
    if odd.any():
        first = int(np.flatnonzero(odd)[0])
        warnings.warn(
            f"{path}: {int(odd.sum())} vectors are not of length 1 (volume {first}: {lengths[first]:.3f}); "
            "they are taken as directions, and the b-values as they stand.",
            DataWarning,
            stacklevel=2,
        )
    usable = lengths >= 1e-3
    return np.where(usable[:, None], vectors, 0) / np.where(usable, lengths, 1)[:, None]


def _lines(rows: Float[ndarray, "rows columns"]) -> str:
    # Nine digits: what a float32 scanner record holds. "+ 0.0" turns -0 into 0.
    return "".join(" ".join(f"{value:.9g}" for value in row + 0.0) + "\n" for row in rows)
