"""A reconstruction back from its files: what `tensorldm reconstruct` wrote, and what its sidecar says."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorldm.errors import DataError
from tensorldm.imaging.nifti import read_mask, read_volume
from tensorldm.imaging.tensor_files import read_tensor
from tensorldm.imaging.tensor_sidecar import read_sidecar, sidecar_path
from tensorldm.imaging.volume import Space
from tensorldm.reconstruct.naming import Naming, naming_of
from tensorldm.reconstruct.outputs import EXTRA
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.report.sidecar_check import check_sidecar
from tensorldm.shapes import Image

ONE_TENSOR = re.compile(r"tensor\.nii(\.gz)?|.+_model-DTI_param-tensor_dwimap\.nii(\.gz)?")
HOW = "Give a folder that `tensorldm reconstruct` wrote."


@dataclass(frozen=True, eq=False)
class Recorded:
    """A reconstruction and the sidecar of its tensor."""

    tensor: Path
    naming: Naming
    result: Reconstruction
    notes: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The subject."""
        return str(self.notes.get("Subject", self.tensor.parent.name))


def find_tensors(place: Path) -> list[Path]:
    """The tensor images of reconstructions in and below a folder, in order; a file is itself."""
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise DataError(f"{place}: there is no such file or folder. {HOW}")
    found = (path for path in place.rglob("*tensor*.nii*") if ONE_TENSOR.fullmatch(path.name))
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(place).parts))


def find_tensor(place: Path) -> Path:
    """The one tensor image that a file or folder means."""
    found = [place] if place.is_file() else find_tensors(place)
    beside = [path for path in found if path.parent == place]
    chosen = beside or found
    if not chosen:
        raise DataError(f"{place}: no tensor image in or below it. {HOW}")
    if len(chosen) > 1:
        raise DataError(f"{place}: {len(chosen)} tensor images in it. Name one of them, or show all with --cohort.")
    return chosen[0]


def read_recorded(tensor: Path) -> Recorded:
    """Everything that a report shows, from the files around a tensor image."""
    notes = read_sidecar(tensor)
    check_sidecar(sidecar_path(tensor), notes)
    naming = naming_of(tensor)
    root, volume = tensor.parent, read_tensor(tensor)
    mask, mask_space = read_mask(root / naming.image("mask"))
    if not mask_space.same_grid(volume.space):
        raise DataError(f"{root / naming.image('mask')}: its grid is not that of {tensor}. Reconstruct the scan again.")
    if not mask.any():
        raise DataError(f"{root / naming.image('mask')}: the mask is empty. Reconstruct the scan again.")
    extra = {name: root / naming.image(name) for name in EXTRA}
    result = Reconstruction(
        tensor=np.where(mask[..., None], volume.data, 0).astype(np.float32),
        space=volume.space,
        mask=mask,
        s0=_read_image(root / naming.image("s0"), volume.space),
        extra={name: _read_image(path, volume.space) for name, path in extra.items() if path.is_file()},
        volumes=tuple(int(each) for each in notes["Volumes"]),
        bvals=tuple(float(each) for each in notes["BValues"]),
        angles_degrees=tuple(float(each) for each in notes["AnglesToAxesDegrees"]),
        spd_touched_share=float(notes.get("NotPositiveDefiniteShare", 0.0)),
        warnings=tuple(str(each) for each in notes["Warnings"]),
        notes=notes,
    )
    return Recorded(tensor, naming, result, notes)


def _read_image(path: Path, space: Space) -> Image:
    volume = read_volume(path)
    if not volume.space.same_grid(space) or volume.data.ndim != 3:
        raise DataError(f"{path}: its grid is not that of the tensor beside it. Reconstruct the scan again.")
    return volume.data.astype(np.float32)
