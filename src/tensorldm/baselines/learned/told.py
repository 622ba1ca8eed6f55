"""What every rival is told, the same for all: the volumes, what they determine, and how they were measured.

TensorLDM knows b-value and direction of each volume, the minimum-norm tensor, the ADCs, the mask and the place in the
head [choice: rival-inputs]; so do its rivals, as channels. Constant channels hold b·ggᵀ of the three weighted volumes.
Axes: b batch, c DWI volume (4), f channel, x y z space.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from tensorldm.batch import Batch, beside, mask_centre
from tensorldm.components import COLUMNS, NUM_COMPONENTS, ROWS
from tensorldm.errors import DataError
from tensorldm.networks.analytic_inputs import analytic_inputs
from tensorldm.networks.direction_conditioner import TYPICAL_B_S_PER_MM2
from tensorldm.networks.expectation import expectation_inputs
from tensorldm.shapes import Dwi, Masks

NUM_VOLUMES = 4
NUM_WEIGHTED = 3
SOLVED = slice(0, NUM_COMPONENTS)
"""Channels of the minimum-norm tensor, in network units."""
NUM_IMAGES = NUM_COMPONENTS + 2 + 2 * NUM_WEIGHTED
"""Minimum-norm tensor, b=0 and mean weighted signal, each weighted signal and its ADC."""
NUM_SETTINGS = 1 + 3 + NUM_WEIGHTED * NUM_COMPONENTS
"""Mask, place in the head, b·ggᵀ of each weighted volume."""
NUM_CHANNELS = NUM_IMAGES + NUM_SETTINGS


@dataclass(frozen=True, eq=False)
class Told:
    """Channels of a batch of scans, zero outside the mask."""

    channels: Float[Tensor, "b f x y z"]
    mask: Masks

    @property
    def images(self) -> Float[Tensor, "b _ x y z"]:
        """What was measured, and what follows from it voxel by voxel."""
        return self.channels[:, :NUM_IMAGES]

    @property
    def settings(self) -> Float[Tensor, "b _ x y z"]:
        """Where and how it was measured."""
        return self.channels[:, NUM_IMAGES:]

    @property
    def inside(self) -> Float[Tensor, "b 1 x y z"]:
        """1 inside the mask, 0 outside."""
        return self.mask[:, None].to(self.channels)


@torch.no_grad()
def tell(
    dwi: Dwi,
    bvals: Float[Tensor, "b c"],
    *,
    directions: Float[Tensor, "b c 3"],
    mask: Masks,
    voxel_size: Float[Tensor, "b 3"],
    component_scales: Sequence[float],
    centre: Float[Tensor, "b 3"] | None = None,
) -> Told:
    """The channels of scans of one b=0 and three weighted volumes, in this order; signals are over the b=0 scale."""
    if dwi.shape[1] != NUM_VOLUMES:
        raise DataError(
            f"{dwi.shape[1]} volumes where this method reads one b=0 and three directions. Choose four volumes."
        )
    inside = mask[:, None].to(dwi)
    dwi = dwi * inside
    solved, adc = analytic_inputs(dwi, bvals, directions=directions, mask=mask, component_scales=component_scales)
    place = mask_centre(mask) if centre is None else centre
    shared = expectation_inputs(dwi, bvals, solved=solved, mask=mask, centre=place, voxel_size=voxel_size)
    images, where = shared[:, : NUM_COMPONENTS + 2], shared[:, NUM_COMPONENTS + 2 :]
    measured = torch.cat([images, dwi[:, 1:], adc[:, 1:]], dim=1)
    return Told(torch.cat([measured, where, gradient_channels(bvals, directions, mask=mask)], dim=1), mask)


def tell_batch(batch: Batch, component_scales: Sequence[float]) -> Told:
    """The channels of a training batch."""
    return tell(**batch.scan, component_scales=component_scales)


def gradient_channels(
    bvals: Float[Tensor, "b c"], directions: Float[Tensor, "b c 3"], *, mask: Masks
) -> Float[Tensor, "b _ x y z"]:
    """b·ggᵀ of each weighted volume, the same at every voxel of the mask; a direction and its opposite agree."""
    outer = directions[:, 1:, ROWS] * directions[:, 1:, COLUMNS]
    values = rearrange(bvals[:, 1:, None] / TYPICAL_B_S_PER_MM2 * outer, "b c d -> b (c d) 1 1 1")
    values = beside(values, mask)
    x, y, z = mask.shape[1:]
    return repeat(values, "b f 1 1 1 -> b f x y z", x=x, y=y, z=z) * mask[:, None].to(values)
