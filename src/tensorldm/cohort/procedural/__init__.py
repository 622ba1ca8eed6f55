"""Heads drawn from a shape, without any outside data: hull, folded cortex, ventricles, deep grey and named bundles."""

from tensorldm.cohort.bundle_names import PAPER_BUNDLES
from tensorldm.cohort.procedural.parameters import REGIONS, HeadShape, draw_shape
from tensorldm.cohort.procedural.source import ProceduralSource

__all__ = ["PAPER_BUNDLES", "REGIONS", "HeadShape", "ProceduralSource", "draw_shape"]
