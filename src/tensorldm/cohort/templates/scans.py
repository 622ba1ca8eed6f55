"""Converter for a raw series: its own fit is an anatomy.

The DWIs go to the working grid and are fitted there by weighted least squares, all volumes together. At b-values
well above 1000 the fit's diffusivities come out lower, and stay so.
"""

from pathlib import Path

import numpy as np
import torch

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.templates.assembling import from_tensors
from tensorldm.cohort.templates.placing import place
from tensorldm.cohort.templates.request import Request
from tensorldm.dti.fit import fit_wls
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.mask import find_brain, mean_b0, read_brain_mask
from tensorldm.imaging.mask_files import find_mask
from tensorldm.imaging.nifti import check_finite, read_volume


def is_scan(folder: Path) -> bool:
    """Whether a folder holds a raw series."""
    return (folder / "dwi.nii.gz").is_file()


def convert_scan(folder: Path, request: Request) -> Anatomy:
    """An anatomy from a DWI series, its mask beside it or found in the b=0 images."""
    path = folder / "dwi.nii.gz"
    series, gradients = read_volume(path), read_gradients(path)
    check_finite(series, path)
    beside = find_mask(path)
    native = find_brain(mean_b0(series, gradients)) if beside is None else read_brain_mask(beside, series.space)
    grid = working_grid(series.space, voxel_mm=request.grid.voxel_mm)
    turned = grid.forward_gradients(gradients)
    mask = grid.forward_mask(native)
    signal = torch.from_numpy(grid.forward(series).data[mask])
    packed, s0 = fit_wls(
        signal, torch.from_numpy(turned.bvals.copy()).float(), torch.from_numpy(turned.directions.copy()).float()
    )
    placement = place(grid.working, mask, grid=request.grid)

    def on_grid(values: torch.Tensor) -> np.ndarray:
        volume = np.zeros((*mask.shape, *values.shape[1:]), dtype=np.float32)
        volume[mask] = values.numpy()
        return volume

    return from_tensors(
        request, placement.tensors(on_grid(packed)), b0=placement.scalars(on_grid(s0)), placement=placement
    )
