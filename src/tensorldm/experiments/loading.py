"""A subject in memory, on the one grid that reference and methods share.

A series whose voxels are not 2 mm is resampled once, before anything is fitted, as the paper does: tensors are never
interpolated, and nobody gains or loses by a grid.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.baselines.scan import Scan, read_scan
from tensorldm.data.selection import PAPER_SHELL, find_shell
from tensorldm.errors import DataError, about
from tensorldm.experiments.subjects import StudySubject
from tensorldm.imaging.flips import check_flips
from tensorldm.imaging.grad_dev import read_grad_dev
from tensorldm.imaging.gradients import write_fsl
from tensorldm.imaging.grid import Grid, working_grid
from tensorldm.imaging.layouts import ScanFiles
from tensorldm.imaging.nifti import write_mask, write_volume
from tensorldm.imaging.volume import Volume

MASK = "mask.nii.gz"


@dataclass(frozen=True, eq=False)
class LoadedSubject:
    """Series, mask and gradients as every method sees them, and the files that hold them."""

    subject: StudySubject
    files: ScanFiles
    scan: Scan
    grad_dev: Float[Tensor, "v 9"] | None
    """The gradient-nonlinearity field inside the mask, in image axes."""

    @property
    def whole_shell(self) -> tuple[int, ...]:
        """What the reference is fitted to: every b=0 and every direction of the shell."""
        gradients = self.scan.gradients
        return tuple(sorted((*gradients.b0_indices, *find_shell(gradients, PAPER_SHELL).indices)))


def load(subject: StudySubject, folder: Path) -> LoadedSubject:
    """Read a subject; its mask, and the series where it was resampled, are written into ``folder``."""
    files = subject.files
    scan = read_scan(files.dwi, mask=files.mask)
    field = None if files.grad_dev is None else read_grad_dev(files.grad_dev, scan.space)
    with about(files.dwi):
        _refuse_suspect(scan)
    if subject.resample:
        whole = working_grid(scan.space)
        grid = whole.cropped(whole.forward_mask(scan.mask))
        scan, field = _moved(scan, grid), None if field is None else grid.forward_grad_dev(field)
        files = ScanFiles(files.name, files.person, folder / "dwi.nii.gz", folder / "dwi.bval", folder / "dwi.bvec")
        write_fsl(folder / "dwi.bval", folder / "dwi.bvec", gradients=scan.gradients, space=scan.space)
        write_volume(files.dwi, Volume(scan.signal, scan.space))
    write_mask(folder / MASK, scan.mask, space=scan.space)
    return LoadedSubject(
        subject,
        ScanFiles(files.name, files.person, files.dwi, files.bval, files.bvec, folder / MASK, files.grad_dev),
        scan,
        None if field is None else torch.from_numpy(field.data[scan.mask].astype(np.float64)),
    )


def _refuse_suspect(scan: Scan) -> None:
    """A wrong gradient sign would make every figure wrong in the same way."""
    result = check_flips(Volume(scan.signal, scan.space), scan.gradients, mask=scan.mask)
    if result.status == "suspect":
        raise DataError(f"{result.message}. Mend the gradient files before they are compared with anything.")


def _moved(scan: Scan, grid: Grid) -> Scan:
    """The scan on a grid around the brain; interpolation overshoots below zero, where no scanner does."""
    volumes = [
        grid.forward(Volume(np.ascontiguousarray(scan.signal[..., index]), scan.space)).data.clip(min=0)
        for index in range(scan.signal.shape[-1])
    ]
    mask = np.ascontiguousarray(grid.forward_mask(scan.mask))
    signal = np.ascontiguousarray(np.stack(volumes, axis=-1), dtype=np.float32)
    return Scan(signal, grid.forward_gradients(scan.gradients), mask, grid.working)
