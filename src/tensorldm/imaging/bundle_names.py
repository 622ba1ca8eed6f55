"""Names of bundles, as TractSeg has them: in file names of the virtual cohort, and of whoever segments tracts."""

from typing import Final

PAPER_BUNDLES: Final = (
    *(f"{name}_{side}" for name in ("CST", "CG", "AF", "IFO", "ILF") for side in ("left", "right")),
    "CC_2",
    "CC_7",
)
"""The twelve whose cores the paper compares [choice: bundles]."""
