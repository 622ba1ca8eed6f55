"""What is known of a scan before any weights are asked, worked out by host and device together.

It is the half of a training step that looks things up, copies and waits; what the networks make of it can be recorded.
Axes: b batch, c DWI volume, x y z space (padded).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.batch import beside, mask_centre
from tensorldm.networks.analytic_inputs import analytic_inputs
from tensorldm.networks.expectation import expectation_inputs
from tensorldm.shapes import Dwi, Masks

Describe = Callable[[Tensor, Tensor], Tensor]
"""(b-values, directions) -> what tells of a scan as a whole."""


class ScanFacts(NamedTuple):
    """A scan on the padded grid, zero outside the mask, and what follows from it without any weights."""

    dwi: Float[Tensor, "b c _ _ _"]
    bvals: Float[Tensor, "b c"]
    directions: Float[Tensor, "b c 3"]
    mask: Bool[Tensor, "b _ _ _"]
    solved: Float[Tensor, "b 6 _ _ _"] | None = None
    """Minimum-norm tensor in network units, where the model reads it."""
    adc: Float[Tensor, "b c _ _ _"] | None = None
    known: Float[Tensor, "b a _ _ _"] | None = None
    """What the expectation reads, where there is one."""
    described: Float[Tensor, "b k"] | None = None

    @property
    def for_expectation(self) -> tuple[Float[Tensor, "b a _ _ _"], Float[Tensor, "b k"]]:
        """The last two, where there is an expectation."""
        assert self.known is not None
        assert self.described is not None
        return self.known, self.described

    def on_device(self) -> dict[str, Tensor]:
        """All that there is, by name, where the volumes are."""
        return {name: beside(value, self.dwi) for name, value in self._asdict().items() if value is not None}


def padded(volume: Float[Tensor, "b c _ _ _"], multiple: int) -> Float[Tensor, "b c _ _ _"]:
    """Zeros behind, up to sides that are multiples of a number."""
    x, y, z = (-side % multiple for side in volume.shape[-3:])
    return F.pad(volume, (0, z, 0, y, 0, x)) if x or y or z else volume


def centre_of(known: Float[Tensor, "b 3"] | None, mask: Bool[Tensor, "b _ _ _"]) -> Float[Tensor, "b 3"]:
    """The brain's centre: the mask's, unless somebody knows better."""
    return mask_centre(mask) if known is None else known


@torch.no_grad()
def scan_facts(
    dwi: Dwi,
    bvals: Float[Tensor, "b c"],
    *,
    directions: Float[Tensor, "b c 3"],
    mask: Masks,
    voxel_size: Float[Tensor, "b 3"],
    centre: Float[Tensor, "b 3"] | None,
    side_multiple: int,
    component_scales: Sequence[float] | None,
    describe: Describe | None,
) -> ScanFacts:
    """Of a scan on any grid. Only models that read the analytic tensor give its scales, and only an expectation has
    something described."""
    place = centre_of(centre, mask)
    inside = padded(mask[:, None].to(dwi), side_multiple)[:, 0] > 0
    dwi = padded(dwi * mask[:, None], side_multiple)
    if component_scales is None:
        return ScanFacts(dwi, bvals, directions, inside)
    solved, adc = analytic_inputs(dwi, bvals, directions=directions, mask=inside, component_scales=component_scales)
    if describe is None:
        return ScanFacts(dwi, bvals, directions, inside, solved, adc)
    known = expectation_inputs(dwi, bvals, solved=solved, mask=inside, centre=place, voxel_size=voxel_size)
    return ScanFacts(dwi, bvals, directions, inside, solved, adc, known, describe(bvals, directions))
