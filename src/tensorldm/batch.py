"""What a network is trained on: a batch of subjects, from a prepared store or straight from the virtual cohort."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, device

from tensorldm.shapes import Components, Dwi, Masks

VOLUMES = ("dwi", "components", "clean", "mask")
"""What has a value at every voxel."""


@dataclass(frozen=True)
class Batch:
    """Sparse input, reference tensor and mask on one RAS grid; every volume travels with its b-value and direction.

    ``dwi`` is divided by one robust b=0 scale per subject, so that S/S0 survives. ``components`` are mm²/s in
    image axes. ``clean`` is the noise-free tensor where it is known (virtual subjects), else ``components`` again.
    ``centre`` is the middle of the whole brain in voxels of this grid: a patch knows where in the head it lies.
    Wherever the volumes are, gradients, sizes and places lie on the CPU: rules for all voxels are made of them there,
    and reading them from a device would make host and device wait for each other in every step.
    """

    dwi: Dwi
    bvals: Float[Tensor, "b c"]
    directions: Float[Tensor, "b c 3"]
    components: Components
    clean: Components
    mask: Masks
    voxel_size: Float[Tensor, "b 3"]
    centre: Float[Tensor, "b 3"]
    subjects: tuple[str, ...]

    @property
    def scan(self) -> dict[str, Tensor]:
        """What a network may see: everything but the reference, by the names that models give it."""
        return {
            "dwi": self.dwi,
            "bvals": self.bvals,
            "directions": self.directions,
            "mask": self.mask,
            "voxel_size": self.voxel_size,
            "centre": self.centre,
        }

    def to(self, where: device | str) -> "Batch":
        """The same batch with its volumes on another device."""
        return replace(self, **{name: getattr(self, name).to(where) for name in VOLUMES})


def beside(small: Tensor, volume: Tensor) -> Tensor:
    """A small tensor where a volume is, without waiting for a CUDA device (others may not have copied it in time)."""
    return small.to(volume.device, non_blocking=volume.is_cuda)


def mask_centre(mask: Masks) -> Float[Tensor, "b 3"]:
    """Mean voxel index of each mask; the middle of the grid where a mask is empty."""
    weights = mask.float()
    total = weights.sum(dim=(1, 2, 3))
    centres = []
    for axis, side in enumerate(mask.shape[1:]):
        others = tuple(other for other in (1, 2, 3) if other != axis + 1)
        index = torch.arange(side, device=mask.device, dtype=torch.float32)
        mean = (weights.sum(dim=others) * index).sum(dim=1) / total.clamp_min(1)
        centres.append(torch.where(total > 0, mean, (side - 1) / 2))
    return torch.stack(centres, dim=1)
