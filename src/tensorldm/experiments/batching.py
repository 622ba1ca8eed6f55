"""A subject of a study as a network reads it, with the reference tensor, and the way back to its own grid."""

from dataclasses import dataclass

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from numpy import ndarray

from tensorldm.batch import Batch, mask_centre
from tensorldm.data.scaling import scale_dwi
from tensorldm.data.selection import select_axes
from tensorldm.dti.packing import rotate
from tensorldm.errors import DataError
from tensorldm.experiments.loading import LoadedSubject
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.grid import Grid, working_grid
from tensorldm.imaging.volume import Volume
from tensorldm.shapes import Components

Field6 = Float[ndarray, "x y z 6"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """The four volumes and the reference in RAS axes around the brain."""

    batch: Batch
    grid: Grid
    volumes: tuple[int, ...]
    """Indices of the four in the series."""

    def to_native(self, components: Components, loaded: LoadedSubject) -> Float[ndarray, "u v w 6"]:
        """Components of the batch (mm²/s) on the subject's own grid and in its axes."""
        packed = rearrange(components[0], "d x y z -> x y z d").double().cpu().numpy()
        inside = self.batch.mask[0].cpu().numpy()
        moved = self.grid.inverse_tensor(Volume(packed, self.grid.working), inside, within=loaded.scan.mask)
        return moved.data.astype(np.float32)


def prepare(loaded: LoadedSubject, reference: Field6) -> Prepared:
    """The batch that ``tensorldm reconstruct`` would make of the scan, and the reference with it."""
    scan = loaded.scan
    whole = working_grid(scan.space)
    if len(whole.steps) > 1:
        raise DataError(
            f"{loaded.files.dwi}: voxels of {scan.space.voxel_size} mm, and a model is looked into at 2 mm. "
            "Give its group 'grid: 2mm'."
        )
    grid = whole.cropped(whole.forward_mask(scan.mask))
    selection = select_axes(grid.forward_gradients(scan.gradients))
    table = grid.forward_gradients(scan.gradients.select(selection.volumes))
    table = GradientTable(table.bvals, np.where(table.is_b0[:, None], 0.0, table.directions))
    mask = torch.from_numpy(np.ascontiguousarray(grid.forward_mask(scan.mask)))
    dwi = torch.stack([_forward(grid, scan.signal[..., volume]) for volume in selection.volumes])
    turned = rotate(torch.from_numpy(reference.astype(np.float64)), torch.from_numpy(grid.turn)).numpy()
    components = torch.stack([_forward(grid, turned[..., d]) for d in range(6)]) * mask
    scaled = scale_dwi(dwi.float(), dwi[0].float(), mask=mask)[0]
    batch = Batch(
        dwi=scaled[None],
        bvals=torch.from_numpy(table.bvals).float()[None],
        directions=torch.from_numpy(table.directions).float()[None],
        components=components.float()[None],
        clean=components.float()[None],
        mask=mask[None],
        voxel_size=torch.tensor([grid.working.voxel_size], dtype=torch.float32),
        centre=mask_centre(mask[None]),
        subjects=(loaded.subject.name,),
    )
    return Prepared(batch, grid, selection.volumes)


def _forward(grid: Grid, image: Float[ndarray, "x y z"]) -> torch.Tensor:
    moved = grid.forward(Volume(np.ascontiguousarray(image), grid.native))
    return torch.from_numpy(np.ascontiguousarray(moved.data))
