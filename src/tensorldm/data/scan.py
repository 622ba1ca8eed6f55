"""From one raw scan to one prepared subject: first what headers and gradients tell in milliseconds, then the work.

The DWIs are re-oriented and resampled, then the tensor is fitted: components are never interpolated.
Axes: n volume of the series, v voxel of the mask, c input volume (b0 x y z), x y z space (RAS).
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.config.prepare import PrepareConfig
from tensorldm.data.reference import reference_tensor
from tensorldm.data.scaling import scale_dwi
from tensorldm.data.selection import Selection, select_axes
from tensorldm.data.subject import GradientCheck, Record, Subject
from tensorldm.dti.fit import fit_ols
from tensorldm.errors import DataError, DataWarning, about, heard
from tensorldm.imaging.flips import check_flips
from tensorldm.imaging.frames import between
from tensorldm.imaging.grad_dev import read_grad_dev
from tensorldm.imaging.gradients import GradientTable, read_gradients
from tensorldm.imaging.grid import Grid, working_grid
from tensorldm.imaging.layouts import ScanFiles
from tensorldm.imaging.mask import find_brain, mean_b0, read_brain_mask
from tensorldm.imaging.nifti import check_finite, check_not_empty, read_header, read_volume
from tensorldm.imaging.volume import Space, Volume
from tensorldm.shapes import MaskImage
from tensorldm.work.sources import SourceFile

LARGE_ANGLE_DEGREES = 30.0
"""Beyond this a volume called x measures a good part of the other axes, and the paper's input holds only in name."""


@dataclass(frozen=True, eq=False)
class CheckedScan:
    """A scan whose headers and gradients are good; its voxels have not been read."""

    files: ScanFiles
    space: Space
    grid: Grid
    """From the native grid to RAS at the wanted voxel size."""
    gradients: GradientTable
    """In the working grid's image axes."""
    selection: Selection

    @property
    def volumes(self) -> tuple[int, ...]:
        """What is read: every b=0 and the whole shell, in the order of the series."""
        return tuple(sorted((*self.selection.b0, *self.selection.shell_indices)))


@dataclass(frozen=True, eq=False)
class WorkingSeries:
    """The volumes of a checked scan on the working grid, cropped around the brain."""

    volume: Volume
    gradients: GradientTable
    mask: MaskImage
    grad_dev: Float[Tensor, "v 9"] | None
    """The gradient-nonlinearity field inside the mask, in image axes."""

    @property
    def signal(self) -> Float[Tensor, "v n"]:
        """Signals inside the mask."""
        return torch.from_numpy(self.volume.data[self.mask].astype(np.float64))

    def unmasked(self, values: Float[Tensor, "v k"]) -> Float[Tensor, "k x y z"]:
        """Values of the mask's voxels as volumes, zero outside."""
        volumes = torch.zeros((*self.mask.shape, values.shape[1]), dtype=torch.float32)
        volumes[torch.from_numpy(self.mask)] = values.float()
        return rearrange(volumes, "x y z k -> k x y z").contiguous()


def check_scan(files: ScanFiles, config: PrepareConfig) -> CheckedScan:
    """Refuse what can be refused without reading voxels: files, counts, grids, shell, directions."""
    if files.problem:
        raise DataError(files.problem)
    space = read_header(files.dwi).space
    gradients = read_gradients(files.dwi, bval=files.bval, bvec=files.bvec)
    grid = working_grid(space, voxel_mm=config.voxel_size_mm)
    turned = grid.forward_gradients(gradients)
    with about(files.dwi):
        selection = select_axes(
            turned, shell=config.shell, antipodal=config.antipodal, tolerance=config.shell_tolerance
        )
        scan = CheckedScan(files, space, grid, turned, selection)
        _require_a_tensor(turned.select(scan.volumes))
    for path in (files.mask, files.grad_dev if config.gradient_nonlinearity else None):
        if path is not None and not read_header(path).space.same_grid(space):
            raise DataError(
                f"{path}: its grid {read_header(path).space.shape} is not that of {files.dwi} {space.shape}, or lies "
                "elsewhere in the world. Give the one that belongs to this series, or move it away."
            )
    return scan


def prepare_scan(
    files: ScanFiles, config: PrepareConfig, *, name: str, person: str, sources: tuple[SourceFile, ...], inputs: str
) -> Subject:
    """Check, read and work; what the user should know becomes part of the subject's record."""
    with heard() as words:
        scan = check_scan(files, config)
        _warn_of_tilt(scan.selection)
        series = _to_working_grid(scan, config)
        with about(files.dwi):
            gradient_check = _check_directions(scan, series, config)
            dwi, b0_scale = _sparse_input(scan, series, mean_b0=config.b0 == "mean")
            components = _reference(series, config, b0_scale=b0_scale)
    chosen = scan.gradients.select(scan.selection.volumes)
    record = Record(
        name=name,
        person=person,
        sources=sources,
        inputs_sha256=inputs,
        native_shape=scan.space.shape,
        native_voxel_size_mm=scan.space.voxel_size,
        shell=scan.selection.shell,
        volumes=scan.selection.volumes,
        angles_degrees=scan.selection.angles_degrees,
        num_b0=len(scan.selection.b0),
        num_directions=len(scan.selection.shell_indices),
        fit=config.reference_fit,
        gradient_nonlinearity=series.grad_dev is not None,
        gradient_check=gradient_check,
        b0_scale=b0_scale,
        mask_voxels=int(series.mask.sum()),
        warnings=tuple(words),
    )
    return Subject(
        record=record,
        dwi=dwi,
        bvals=torch.from_numpy(chosen.bvals.copy()),
        # A b=0 volume has no direction, whatever its file says.
        directions=torch.from_numpy(np.where(chosen.is_b0[:, None], 0.0, chosen.directions)),
        components=components,
        mask=torch.from_numpy(series.mask),
        affine=series.volume.space.affine,
    )


def _require_a_tensor(table: GradientTable) -> None:
    """A fit of one voxel of ones refuses directions that do not determine a tensor."""
    bvals, directions = torch.from_numpy(table.bvals.copy()), torch.from_numpy(table.directions.copy())
    fit_ols(torch.ones(1, len(table), dtype=bvals.dtype), bvals, directions)


def _warn_of_tilt(selection: Selection) -> None:
    worst = max(selection.angles_degrees)
    if worst > LARGE_ANGLE_DEGREES:
        axis = "xyz"[selection.angles_degrees.index(worst)]
        warnings.warn(
            f"the direction nearest to {axis} (volume {selection.axes['xyz'.index(axis)]}) is {worst:.0f}° away from "
            "it: use a method that knows the directions.",
            DataWarning,
            stacklevel=2,
        )


def _to_working_grid(scan: CheckedScan, config: PrepareConfig) -> WorkingSeries:
    """Read, mask, re-orient, resample and crop; volume by volume, so that memory stays near one series."""
    series = read_volume(scan.files.dwi, volumes=scan.volumes)
    check_finite(series, scan.files.dwi, volumes=scan.volumes)
    check_not_empty(series, scan.files.dwi, volumes=scan.volumes)
    table = scan.gradients.select(scan.volumes)
    found = _native_mask(scan, mean_b0(series, table))
    with about(scan.files.mask or scan.files.dwi):
        whole = scan.grid.forward_mask(found)
        if not whole.any():
            raise DataError(f"the brain mask is empty at {config.voxel_size_mm:g} mm. Give a mask of the whole brain.")
    grid = scan.grid.cropped(whole, margin=round(config.margin_mm / config.voxel_size_mm))
    mask = grid.forward_mask(found)
    moved = np.empty((*grid.working.shape, len(table)), dtype=np.float32)
    for i in range(len(table)):
        moved[..., i] = grid.forward(series.with_data(np.ascontiguousarray(series.data[..., i]))).data
    grad_dev = None
    if scan.files.grad_dev is not None and config.gradient_nonlinearity:
        field = grid.forward_grad_dev(read_grad_dev(scan.files.grad_dev, scan.space))
        grad_dev = torch.from_numpy(field.data[mask].astype(np.float64))
    return WorkingSeries(Volume(moved, grid.working), table, mask, grad_dev)


def _native_mask(scan: CheckedScan, b0: Volume) -> MaskImage:
    if scan.files.mask is not None:
        return read_brain_mask(scan.files.mask, scan.space)
    with about(scan.files.dwi):
        return find_brain(b0)


def _check_directions(scan: CheckedScan, series: WorkingSeries, config: PrepareConfig) -> GradientCheck:
    """The whole series is checked, before its four volumes become anyone's input."""
    to_file = between("image", "fsl", space=scan.space) @ scan.grid.turn.T
    result = check_flips(series.volume, series.gradients, mask=series.mask, to_file=to_file)
    if result.status == "suspect":
        if config.suspect_gradients == "refuse":
            raise DataError(f"{result.message}. Mend the file, or accept it with --set suspect_gradients=warn.")
        warnings.warn(result.message, DataWarning, stacklevel=2)
    elif result.status == "untestable":
        warnings.warn(result.message, DataWarning, stacklevel=2)
    return result.status


def _sparse_input(scan: CheckedScan, series: WorkingSeries, *, mean_b0: bool) -> tuple[Float[Tensor, "c x y z"], float]:
    """The four volumes inside the mask, scaled, and the scale."""
    place = {volume: i for i, volume in enumerate(scan.volumes)}
    signal = series.signal
    volumes = signal[:, [place[volume] for volume in scan.selection.volumes]]
    if mean_b0:
        volumes[:, 0] = signal[:, [place[volume] for volume in scan.selection.b0]].mean(dim=1)
    dwi = series.unmasked(volumes)
    return scale_dwi(dwi, dwi[0], mask=torch.from_numpy(series.mask))


def _reference(series: WorkingSeries, config: PrepareConfig, *, b0_scale: float) -> Float[Tensor, "6 x y z"]:
    packed = reference_tensor(
        series.signal,
        torch.from_numpy(series.gradients.bvals.copy()),
        directions=torch.from_numpy(series.gradients.directions.copy()),
        fit=config.reference_fit,
        b0_scale=b0_scale,
        grad_dev=series.grad_dev,
    )
    if not torch.isfinite(packed).all():
        raise DataError("the reference fit is not finite in every voxel of the mask. Check the series and the mask.")
    return series.unmasked(packed)
