"""One virtual subject as files: what a scanner would have saved, and what only we can know.

Arrays go out left-right flipped (LAS), as dcm2niix and HCP write them, so that reading them back takes every turn
that real scans take. Axes: n volume, x y z space.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from tensorldm.cohort.anatomy import TISSUES
from tensorldm.cohort.axes import Size, along_axes
from tensorldm.cohort.measurement import measure
from tensorldm.cohort.scanner import add_noise, deviations, grid_matrices, laid_out, smoothed
from tensorldm.cohort.virtual import VirtualSubject
from tensorldm.dti.packing import MIRROR_SIGNS
from tensorldm.imaging.frames import between
from tensorldm.imaging.grad_dev import turned_deviations
from tensorldm.imaging.gradients import GradientTable, write_fsl
from tensorldm.imaging.nifti import write_mask, write_volume
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.imaging.volume import Space, Volume
from tensorldm.rng import generator

WHITE_MATTER_INTENSITY = 1000.0
"""b=0 signal of white matter in the files: scanners save whole numbers, and noise of 3 % is then 30 steps."""
TISSUE_LABELS = {"csf": "CSF", "grey": "GM", "white": "WM"}
"""BIDS' names of the tissue maps."""


@dataclass(frozen=True)
class ScanPaths:
    """Where the parts of a series go."""

    dwi: Path
    bval: Path
    bvec: Path
    mask: Path | None = None
    grad_dev: Path | None = None


def space_of(shape: tuple[int, ...], voxel_size: Size) -> Space:
    """An LAS grid with the world's origin in its middle."""
    x, y, z = shape
    affine = np.diag([-voxel_size[0], voxel_size[1], voxel_size[2], 1.0])
    affine[:3, 3] = -affine[:3, :3] @ ((np.array([x, y, z]) - 1) / 2)
    return Space((x, y, z), affine)


def write_scan(subject: VirtualSubject, paths: ScanPaths, *, air_seed: int | None) -> None:
    """The series, its gradients and, where asked for, mask and gradient deviation.

    Outside the brain there is the noise of air, drawn from ``air_seed``, or nothing where that is None; a scanner that
    blurs its images blurs the air with the brain.
    """
    scan = subject.scan
    space = space_of(tuple(scan.mask.shape), scan.voxel_size)
    volumes = laid_out(scan.signal, scan.mask)
    if air_seed is not None:
        air = ~scan.mask
        silence = volumes.new_zeros(len(volumes), int(air.sum()))
        noise = generator(air_seed, "air", device=volumes.device)
        around = add_noise(silence, scan.sigma, coils=scan.protocol.coils, generator=noise)
        if scan.protocol.smoothing_fwhm > 0:
            around = smoothed(around.T, air, fwhm=scan.protocol.smoothing_fwhm, voxel_size=scan.voxel_size).T
        volumes[:, air] = around
    whole = _flipped(volumes).mul_(WHITE_MATTER_INTENSITY).round_().clamp_(0, np.iinfo(np.int16).max)
    table = scan.protocol.directions * scan.protocol.directions.new_tensor([-1.0, 1.0, 1.0])
    gradients = GradientTable(scan.protocol.bvals.numpy(), table.numpy())
    write_fsl(paths.bval, paths.bvec, gradients=gradients, space=space)
    if paths.mask is not None:
        write_mask(paths.mask, _flipped(scan.mask).numpy(), space=space)
    if paths.grad_dev is not None and scan.field is not None:
        _write_grad_dev(paths.grad_dev, subject, space)
    write_volume(paths.dwi, Volume(_series(whole), space), dtype=np.int16)


def write_truth(subject: VirtualSubject, folder: Path, *, prefix: str, notes: Mapping[str, Any]) -> None:
    """The tensor without noise, tissue fractions, brain mask and bundle masks, on the scan's grid."""
    scan, anatomy = subject.scan, subject.anatomy
    x, y, z = scan.mask.shape
    space = space_of((x, y, z), scan.voxel_size)
    clean = measure(scan, shape=(x, y, z), voxel_size=scan.voxel_size).clean
    signs = clean.new_tensor(MIRROR_SIGNS)[:, None, None, None]
    mask_path = folder / f"{prefix}desc-brain_mask.nii.gz"
    write_mask(mask_path, _flipped(scan.mask).numpy(), space=space)
    matrices, _ = grid_matrices(anatomy, scan.protocol)
    tissue = along_axes(anatomy.tissue, matrices)
    for name, fraction in zip(TISSUES, tissue, strict=True):
        path = folder / f"{prefix}label-{TISSUE_LABELS[name]}_probseg.nii.gz"
        write_volume(path, Volume(_flipped(fraction).numpy(), space))
    for name, bundle in anatomy.bundles.items():
        inside = along_axes(bundle.mask.to(tissue.dtype)[None], matrices)[0] >= 0.5
        write_mask(folder / "bundles" / f"{name}.nii.gz", _flipped(inside).numpy(), space=space)
    tensor_path = folder / f"{prefix}desc-clean_tensor.nii.gz"
    origin = Provenance(method="OLS fit of the noise-free signal", subject=notes.get("Subject"), mask=mask_path)
    write_tensor(
        tensor_path, _series(_flipped(clean) * signs), space=space, notes={**notes, **origin.notes_for(tensor_path)}
    )


def _write_grad_dev(path: Path, subject: VirtualSubject, space: Space) -> None:
    scan = subject.scan
    assert scan.field is not None
    everywhere = torch.ones_like(scan.mask)
    field = laid_out(deviations(scan.field, everywhere, voxel_size=scan.voxel_size), everywhere)
    to_file = between("image", "fsl", space=space) @ np.diag([-1.0, 1.0, 1.0])  # LAS's image axes, then FSL's
    write_volume(path, Volume(turned_deviations(_series(_flipped(field)), to_file), space))


def _flipped(volume: Tensor) -> Tensor:
    """RAS to LAS."""
    return volume.flip(-3).cpu()


def _series(volumes: Float[Tensor, "n x y z"]) -> Float[ndarray, "x y z n"]:
    return np.ascontiguousarray(volumes.movedim(0, -1).numpy())
