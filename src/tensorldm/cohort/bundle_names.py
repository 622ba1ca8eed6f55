"""Names of bundles, as TractSeg has them."""

from tensorldm.imaging.bundle_names import PAPER_BUNDLES

__all__ = ["PAPER_BUNDLES"]
