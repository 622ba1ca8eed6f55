"""What of a head a scan and its mask show: a slab instead of the whole, a mask that lacks the rim or takes in bone."""

from dataclasses import replace

from jaxtyping import Bool
from torch import Generator, Tensor
from torch.nn.functional import max_pool3d

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.axes import centred
from tensorldm.cohort.clinical import ArtefactSettings
from tensorldm.cohort.draws import uniform, whole
from tensorldm.cohort.ranges import Range

LAYERS = (1, 2)
"""Voxels that a tight mask lacks all around."""
LEAST_VOXELS = 1000
"""A view of less than this is not taken: there would be nothing to learn."""


def draw_rim(settings: ArtefactSettings, usual: Range, *, generator: Generator) -> tuple[Range, int]:
    """How much bone this subject's mask takes in, and how many layers of brain it lacks."""
    drawn = uniform(generator, (0.0, 1.0))
    layers = whole(generator, LAYERS)
    if drawn < settings.eroded:
        return (0.0, 0.0), layers
    if drawn < settings.eroded + settings.generous:
        return settings.generous_rim, 0
    return usual, 0


def erode(anatomy: Anatomy, layers: int) -> Anatomy:
    """The anatomy without the outermost voxels of its mask."""
    if layers == 0:
        return anatomy
    outside = (~anatomy.mask).to(anatomy.s0.dtype)[None, None]
    wider = max_pool3d(outside, kernel_size=2 * layers + 1, stride=1, padding=layers)[0, 0] > 0
    return seen_through(anatomy, ~wider)


def cut_slab(anatomy: Anatomy, settings: ArtefactSettings, *, generator: Generator) -> Anatomy:
    """The anatomy within a field of view of limited height, in the share of subjects that have one."""
    has_slab = uniform(generator, (0.0, 1.0)) < settings.slab
    height, place = uniform(generator, settings.slab_mm), uniform(generator, (0.0, 1.0))
    if not has_slab:
        return anatomy
    heights = centred(anatomy.s0.shape[2], anatomy.voxel_size[2]).to(anatomy.s0)
    filled = heights[anatomy.mask.any(dim=0).any(dim=0)]
    low, high = filled.amin(), filled.amax()
    middle = low + height / 2 + place * (high - low - height).clamp(min=0)
    inside: Bool[Tensor, " z"] = (heights - middle).abs() <= height / 2
    return seen_through(anatomy, anatomy.mask & inside)


def seen_through(anatomy: Anatomy, mask: Bool[Tensor, "x y z"]) -> Anatomy:
    """The anatomy within a mask that is part of its own; as it is where the mask holds next to nothing."""
    if int(mask.sum()) < LEAST_VOXELS:
        return anatomy
    inside = mask.to(anatomy.s0.dtype)
    return replace(
        anatomy,
        tensors=anatomy.tensors * inside,
        fractions=anatomy.fractions * inside,
        s0=anatomy.s0 * inside,
        tissue=anatomy.tissue * inside,
        mask=mask,
    )
