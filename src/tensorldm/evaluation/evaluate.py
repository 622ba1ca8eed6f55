"""From tensor images on disk to the long table: every method goes through this one door.

Nothing is known here of how a tensor was made. Grids must match, conventions must be said, and each file's tensor is
taken to the image axes of that grid before it is compared.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tensorldm.dti.maps import mean_diffusivity
from tensorldm.errors import DataError
from tensorldm.evaluation.measures import Field, Figure, Mask, Prepared, measure, measure_reference, prepare
from tensorldm.evaluation.table import Row
from tensorldm.imaging.mask_files import find_mask
from tensorldm.imaging.nifti import read_mask, stem
from tensorldm.imaging.tensor_files import read_convention, read_provenance, read_tensor
from tensorldm.imaging.volume import Space, Volume
from tensorldm.shapes import MaskImage

REFERENCE = "reference"
"""The method name under which the table keeps what is measured of the reference alone."""
PLAUSIBLE_MD_MM2_PER_S = (1e-5, 1e-2)
"""Median mean diffusivity of any brain, with a wide margin; µm²/ms, the other common unit, is 1000 times larger."""
ON_ITS_GRID = "Reconstruct on the reference's grid: tensors are not interpolated here."


@dataclass(frozen=True, eq=False)
class Target:
    """A reference read once and compared with many predictions, cropped to the box around its mask."""

    subject: str
    anatomy: str
    space: Space
    box: tuple[slice, slice, slice]
    prepared: Prepared

    def row(self, method: str, figure: Figure) -> Row:
        """A figure of this subject as a line of the table."""
        return Row(method, self.subject, *figure, anatomy=self.anatomy)


def evaluate_files(
    reference: Path,
    predictions: Sequence[Path],
    *,
    mask: Path | None = None,
    convention: str | None = None,
    subject: str | None = None,
    methods: Sequence[str] | None = None,
) -> list[Row]:
    """Measure each prediction against the reference; rows in the order given, the reference's own first.

    ``mask`` defaults to the one the reference's sidecar names, then to one that lies beside it. ``convention`` is for
    files without a sidecar. ``subject`` defaults to the reference's own, ``methods`` to what the sidecars say.
    """
    methods = name_methods(predictions) if methods is None else methods
    target = _read_target(reference, mask=mask, convention=convention, subject=subject)
    rows = [target.row(REFERENCE, figure) for figure in measure_reference(target.prepared)]
    for path, method in zip(predictions, methods, strict=True):
        image = read_tensor(path, convention=read_convention(path, default=convention))
        _check_grid(path, image.space, reference, target.space)
        field = _cropped(image, target.box)
        _check_field(path, field, target.prepared.mask)
        prediction = prepare(field, target.prepared.mask)
        rows += [target.row(method, figure) for figure in measure(target.prepared, prediction)]
    return rows


def name_methods(predictions: Sequence[Path]) -> list[str]:
    """What to call each prediction: its sidecar's method, or its file's name; folder and file where those repeat."""
    names = [read_provenance(path).method or stem(path) for path in predictions]
    repeated = _repeated(names)
    names = [
        f"{path.resolve().parent.name}/{stem(path)}" if name in repeated else name
        for path, name in zip(predictions, names, strict=True)
    ]
    clash = next(iter(_repeated(names)), None)
    if clash is not None:
        raise DataError(f"Two predictions would both be called '{clash}'. Rename a file, or evaluate them apart.")
    return names


def _repeated(names: Sequence[str]) -> set[str]:
    return {name for name, count in Counter([*names, REFERENCE]).items() if count > 1}


def _read_target(reference: Path, *, mask: Path | None, convention: str | None, subject: str | None) -> Target:
    image = read_tensor(reference, convention=read_convention(reference, default=convention))
    known = read_provenance(reference)
    mask_path = mask_of(reference, mask)
    inside, mask_space = read_mask(mask_path)
    _check_grid(mask_path, mask_space, reference, image.space, advice="Give a mask on the reference's grid.")
    if not inside.any():
        raise DataError(f"{mask_path}: the mask is empty. Give a mask that covers the brain.")
    box = _box(inside)
    field, mask_inside = _cropped(image, box), torch.from_numpy(inside[box].copy())
    _check_field(reference, field, mask_inside)
    return Target(
        subject=subject or known.subject or stem(reference),
        anatomy=known.anatomy or "",
        space=image.space,
        box=box,
        prepared=prepare(field, mask_inside),
    )


def mask_of(reference: Path, given: Path | None) -> Path:
    """The mask to measure in: the one given, the one that the reference's sidecar names, or one beside it."""
    found = given or read_provenance(reference).mask or find_mask(reference)
    if found is None:
        raise DataError(
            f"{reference}: its sidecar names no mask and none lies beside it. Give one with --mask: air must not count."
        )
    return found


def _check_grid(path: Path, space: Space, reference: Path, expected: Space, *, advice: str = ON_ITS_GRID) -> None:
    if not space.same_grid(expected):
        size, wanted = (" × ".join(f"{side:.3g}" for side in grid.voxel_size) for grid in (space, expected))
        raise DataError(
            f"{path}: its grid of {space.shape} voxels of {size} mm is not that of {reference} "
            f"({expected.shape} of {wanted} mm, or another place in the world). "
            f"{advice}"
        )


def _check_field(path: Path, field: Field, mask: Mask) -> None:
    inside = field[mask]
    broken = int((~inside.isfinite().all(dim=-1)).sum())
    if broken:
        raise DataError(
            f"{path}: {broken} voxels of the mask are NaN or infinite. Mend the tensor, or shrink the mask."
        )
    if not inside.any():
        raise DataError(f"{path}: the tensor is zero in the whole mask. Check the file and the mask.")
    typical = mean_diffusivity(inside).median().item()
    low, high = PLAUSIBLE_MD_MM2_PER_S
    if not low <= typical <= high:
        raise DataError(
            f"{path}: a typical mean diffusivity of {typical:.2g} in the mask is not a brain's in mm²/s "
            f"({low:g} to {high:g}). Convert the tensor to mm²/s."
        )


def _box(mask: MaskImage) -> tuple[slice, slice, slice]:
    """The smallest box around the mask; no measure looks further."""
    places = [np.flatnonzero(mask.any(axis=other)) for other in ((1, 2), (0, 2), (0, 1))]
    x, y, z = (slice(int(found[0]), int(found[-1]) + 1) for found in places)
    return x, y, z


def _cropped(image: Volume, box: tuple[slice, slice, slice]) -> Field:
    """In double precision: the figures should not depend on how a file rounds."""
    return torch.from_numpy(image.data[box].astype(np.float64))
