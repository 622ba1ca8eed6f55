"""The settings of virtual subjects as a YAML file holds them; the stream itself takes the plain dataclasses."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from tensorldm.cohort.settings import CohortSettings, ProtocolSettings, VariationSettings, WarpSettings
from tensorldm.config.reading import Strict, read_config


class CohortConfig(Strict):
    """A virtual cohort: the grid of its heads, and how subjects and scans vary."""

    shape: tuple[int, int, int] = Field(default=(96, 112, 96), description="voxels of the procedural heads' grid")
    voxel_mm: tuple[float, float, float] = Field(default=(2.0, 2.0, 2.0), description="its voxel size")
    warp: WarpSettings = Field(default_factory=WarpSettings)
    variation: VariationSettings = Field(default_factory=VariationSettings)
    protocol: ProtocolSettings = Field(default_factory=ProtocolSettings)

    @property
    def settings(self) -> CohortSettings:
        """What the stream and the scanner take."""
        return CohortSettings(warp=self.warp, variation=self.variation, protocol=self.protocol)


def read_cohort(source: Path | str = "cohort", overrides: Sequence[str] = ()) -> CohortConfig:
    """A preset or YAML file with ``a.b=c`` overrides."""
    return read_config(CohortConfig, source, overrides)
