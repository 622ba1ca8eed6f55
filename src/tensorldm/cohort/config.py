"""The settings of virtual subjects as a YAML file holds them; the stream itself takes the plain dataclasses."""

from collections.abc import Sequence
from math import prod
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from tensorldm.cohort.clinical import ArtefactSettings, DetailSettings
from tensorldm.cohort.settings import (
    CohortSettings,
    ProtocolSettings,
    ReferenceNoise,
    VariationSettings,
    WarpSettings,
)
from tensorldm.config.reading import Strict, read_config

LEAST_SIDE_MM = 100.0
"""A head in a smaller box has no brain left to measure."""
VOXEL_MM = (0.5, 12.0)
MOST_VOXELS = 2**25
"""A head at 0.7 mm has 20 million."""


class CohortConfig(Strict):
    """A virtual cohort: the grid of its heads, and how subjects and scans vary."""

    shape: tuple[int, int, int] = Field(default=(96, 112, 96), description="voxels of the procedural heads' grid")
    voxel_mm: tuple[float, float, float] = Field(default=(2.0, 2.0, 2.0), description="its voxel size")
    warp: WarpSettings = Field(default_factory=WarpSettings)
    variation: VariationSettings = Field(default_factory=VariationSettings)
    protocol: ProtocolSettings = Field(default_factory=ProtocolSettings)
    detail: DetailSettings = Field(default_factory=DetailSettings)
    artefacts: ArtefactSettings = Field(default_factory=ArtefactSettings)
    scans_per_head: int = Field(default=1, ge=1, description="scans of a head, one after the other")
    reference_noise: ReferenceNoise = Field(
        default="all", description="of a stream's reference: all, or shared with the input alone"
    )

    @field_validator("voxel_mm")
    @classmethod
    def _plausible(cls, voxel_mm: tuple[float, float, float]) -> tuple[float, float, float]:
        if not all(VOXEL_MM[0] <= side <= VOXEL_MM[1] for side in voxel_mm):
            raise ValueError(f"a voxel has sides of {VOXEL_MM[0]:g} to {VOXEL_MM[1]:g} mm")
        return voxel_mm

    @model_validator(mode="after")
    def _holds_a_head(self) -> "CohortConfig":
        if prod(self.shape) > MOST_VOXELS:
            raise ValueError(f"shape has {prod(self.shape)} voxels, over the limit of {MOST_VOXELS}")
        sides = [count * side for count, side in zip(self.shape, self.voxel_mm, strict=True)]
        if min(sides) < LEAST_SIDE_MM:
            box = " × ".join(f"{side:g}" for side in sides)
            raise ValueError(f"shape times voxel_mm is {box} mm, and a head needs {LEAST_SIDE_MM:g} mm each way")
        return self

    @property
    def settings(self) -> CohortSettings:
        """What the stream and the scanner take."""
        return CohortSettings(
            warp=self.warp,
            variation=self.variation,
            protocol=self.protocol,
            detail=self.detail,
            artefacts=self.artefacts,
            scans_per_head=self.scans_per_head,
            reference_noise=self.reference_noise,
        )


def read_cohort(source: Path | str = "cohort", overrides: Sequence[str] = ()) -> CohortConfig:
    """A preset or YAML file with ``a.b=c`` overrides."""
    return read_config(CohortConfig, source, overrides)
