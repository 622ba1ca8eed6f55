"""Which tissue fills each voxel, as smooth volume fractions of the signed distances (partial volume)."""

from dataclasses import dataclass, fields, replace
from typing import Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.cohort.procedural import shape as geometry
from tensorldm.cohort.procedural.distance import Distances, Points
from tensorldm.cohort.procedural.parameters import HeadShape

SOFTNESS_PER_VOXEL: Final = 0.22
"""Scale of the logistic step that stands for a voxel's box: 0.16 has the box's variance, a little more its blur."""
CEREBELLAR_CORTEX_MM: Final = 6.5
CROWN_MM: Final = 9.0
"""Near the surface the cortex is drawn as it is, whatever bundle ends there."""


@dataclass(frozen=True)
class TissueMap:
    """Volume fractions of a list of voxels; they sum to 1."""

    csf: Float[Tensor, " n"]
    cortex: Float[Tensor, " n"]
    nuclei: Float[Tensor, " n"]
    white: Float[Tensor, " n"]
    inside: Float[Tensor, " n"]
    """Depth below the brain's smooth wrapping (mm); negative outside."""
    depth: Float[Tensor, " n"]
    """Depth below the hull of the cerebrum (mm)."""
    hindbrain: Float[Tensor, " n"]
    """1 in the cerebellum and brainstem, 0 in the cerebrum."""

    def select(self, rows: Bool[Tensor, " n"]) -> "TissueMap":
        """The same for some of the voxels."""
        return TissueMap(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def give_way_to(self, trunk: Float[Tensor, " n"]) -> "TissueMap":
        """White matter along every bundle's trunk, whatever was drawn there before: sulci do not cut bundles."""
        solid = trunk * torch.sigmoid((self.depth - CROWN_MM) / 1.5).maximum(self.hindbrain)
        rest = 1 - solid
        return replace(
            self,
            csf=self.csf * rest,
            cortex=self.cortex * rest,
            # Fibres run through nuclei without taking their place, except where a bundle is dense.
            nuclei=self.nuclei * (1 - solid.square()),
            white=self.white * rest + solid * (1 - self.nuclei) + self.nuclei * solid.square(),
        )


def tissue_map(points: Points, shape: HeadShape, *, folds: geometry.Folds, voxel_mm: float) -> TissueMap:
    """The tissues at points of the average head."""
    soft = SOFTNESS_PER_VOXEL * voxel_mm
    depth = geometry.cerebrum(points)
    surface = distance_to_fluid(points, shape, folds=folds, depth=depth)
    stem, small_brain = geometry.brainstem(points), geometry.cerebellum(points)
    cerebral_white = _step(surface - shape.cortex_thickness, soft)
    cerebral_fluid = _step(-surface, soft)
    # The cerebellar cortex is folded more finely than any voxel: a mixture that turns white towards the core.
    leaf_white = _step(small_brain - CEREBELLAR_CORTEX_MM, 1.5 + soft)
    leaf_fluid = 0.12 * _step(CEREBELLAR_CORTEX_MM - small_brain, 1.5 + soft) + _step(-small_brain, soft)
    stem_inside = _step(stem, soft)
    hindbrain = ((torch.maximum(stem, small_brain) > depth) & (torch.maximum(stem, small_brain) > -1)).to(points.dtype)
    white = torch.where(hindbrain > 0, leaf_white, cerebral_white)
    fluid = torch.where(hindbrain > 0, leaf_fluid.clamp_max(1), cerebral_fluid)
    white = torch.maximum(white, stem_inside)
    fluid = torch.minimum(fluid, 1 - stem_inside)
    hollow = _step(geometry.ventricles(points, shape.ventricle_scale), soft)
    grey_nuclei = _step(geometry.nuclei(points), soft + 0.4) * (1 - hollow)
    fluid, white = torch.maximum(fluid, hollow), white * (1 - hollow) * (1 - grey_nuclei)
    fluid = fluid * (1 - grey_nuclei)
    cortex = (1 - fluid - white - grey_nuclei).clamp_min(0)
    total = fluid + white + grey_nuclei + cortex
    return TissueMap(
        csf=fluid / total,
        cortex=cortex / total,
        nuclei=grey_nuclei / total,
        white=white / total,
        inside=geometry.envelope(points),
        depth=depth,
        hindbrain=hindbrain,
    )


def distance_to_fluid(points: Points, shape: HeadShape, *, folds: geometry.Folds, depth: Distances) -> Distances:
    """Distance from the cerebrum's tissue to the nearest fluid outside the ventricles; negative in the fluid."""
    sheets = geometry.sulci(points, depth, folds=folds, shape=shape)
    fissures = torch.minimum(
        geometry.fissure(points) - geometry.FISSURE_HALF_WIDTH_MM, geometry.sylvian(points) - shape.sulcus_half_width
    )
    return torch.minimum(torch.minimum(depth, sheets), fissures)


def _step(distance: Distances, softness: float) -> Distances:
    return torch.sigmoid(distance / softness)
