"""What makes tensors of a scan's volumes: one contract for closed forms and for a trained model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.reconstruct.uncertainty import Calibration
from tensorldm.shapes import BVals, Directions


@dataclass(frozen=True)
class Traits:
    """What the pipeline has to know of a method before it is loaded."""

    name: str
    voxelwise: bool
    """It looks at one voxel at a time, so any grid will do."""
    fixed_input: bool
    """It takes b=0, x, y, z for granted, whatever the gradients are; a network of this kind expects b=1000."""
    samples: bool
    """It draws: several results differ, and their spread means something."""
    four_volumes: bool = False
    """It reads one b=0 and three directions and no other number, though it is told which directions they are."""


@dataclass(frozen=True, eq=False)
class WorkingScan:
    """The chosen volumes on the working grid, cropped around the brain; directions in its image axes."""

    dwi: Float[Tensor, "c x y z"]
    """Scanner units, b=0 first."""
    bvals: BVals
    directions: Directions
    mask: Bool[Tensor, "x y z"]
    voxel_size: tuple[float, float, float]
    b0_scale: float
    key: str
    """What noise is keyed by: a hash of the volumes before resampling, in RAS order, whatever the file is called."""

    @property
    def signal(self) -> Float[Tensor, "v c"]:
        """Signals inside the mask, in double precision."""
        return self.dwi[:, self.mask].T.double()


@runtime_checkable
class Engine(Protocol):
    """A loaded method."""

    @property
    def traits(self) -> Traits:
        """What it is."""
        ...

    @property
    def notes(self) -> Mapping[str, Any]:
        """What a sidecar should say of it."""
        ...

    @property
    def calibration(self) -> Calibration:
        """How much wider than the samples' own spread its intervals have to be."""
        ...

    def estimate(self, scan: WorkingScan) -> Float[Tensor, "k v 6"]:
        """Samples of the tensor of every voxel of the mask: mm²/s, image axes, on the CPU."""
        ...
