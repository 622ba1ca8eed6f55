"""What every method is given: a whole series on its own grid, with gradients and brain mask."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from tensorldm.data.reference import SIGNAL_FLOOR
from tensorldm.dti.intensity import robust_b0_scale
from tensorldm.errors import DataError
from tensorldm.imaging.gradients import GradientTable, read_gradients
from tensorldm.imaging.mask import find_brain, mean_b0, read_brain_mask
from tensorldm.imaging.nifti import check_finite, check_not_empty, read_header, read_volume
from tensorldm.imaging.volume import Space, Volume
from tensorldm.shapes import BVals, Directions, MaskImage, Series


@dataclass(frozen=True, eq=False)
class Scan:
    """A diffusion-weighted series; directions are in image axes, the signal in the scanner's units."""

    signal: Series
    gradients: GradientTable
    mask: MaskImage
    space: Space

    @property
    def signal_floor(self) -> float:
        """The least signal that is believed, in the scan's units [choice: signal-floor]."""
        b0 = self.signal[..., list(self.gradients.b0_indices)].mean(axis=-1)
        return SIGNAL_FLOOR * robust_b0_scale(torch.from_numpy(b0), torch.from_numpy(self.mask)).item()

    def inside(self, volumes: tuple[int, ...]) -> tuple[Float[Tensor, "voxels n"], BVals, Directions]:
        """Signal of the mask voxels in the chosen volumes with their gradients, in double precision.

        Raised to the floor, the same for every method: the zeros that scanners write would else become diffusivities
        of seven times free water, and a few hundred of them would decide every PSNR.
        """
        table = self.gradients.select(volumes)
        signal = self.signal[self.mask][:, list(volumes)].astype(np.float64).clip(min=self.signal_floor)
        return (
            torch.from_numpy(signal),
            torch.from_numpy(table.bvals.copy()),
            torch.from_numpy(table.directions.copy()),
        )

    def scatter(self, packed: Float[Tensor, "voxels 6"]) -> Float[ndarray, "x y z 6"]:
        """Tensors of the mask voxels put back on the grid; zero elsewhere."""
        image = np.zeros((*self.space.shape, 6), dtype=np.float32)
        image[self.mask] = packed.numpy()
        return image


def read_scan(path: Path, *, mask: Path | None = None) -> Scan:
    """A series with its gradients from the files beside it; without a mask the brain is found in the mean b=0.

    Cheap checks (gradients, grid of the mask) come before the voxels are read.
    """
    gradients = read_gradients(path)
    given = None if mask is None else read_brain_mask(mask, read_header(path).space)
    volume = read_volume(path)
    check_finite(volume, path)
    check_not_empty(volume, path)
    return Scan(volume.data, gradients, _brain(path, volume, gradients) if given is None else given, volume.space)


def _brain(path: Path, volume: Volume, gradients: GradientTable) -> MaskImage:
    try:
        return find_brain(mean_b0(volume, gradients))
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
