"""Whether a tensor's sidecar says what a report needs, in a form that can be shown; anybody may have edited it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.errors import DataError


class ModelNotes(BaseModel):
    """Which trained model."""

    Title: str
    WeightsSHA256: str
    MadeBy: str = ""


class SidecarNotes(BaseModel):
    """The keys that a report reads; others may be there."""

    model_config = ConfigDict(strict=False, extra="allow")

    Method: str
    Subject: str | None = None
    Volumes: list[int] = Field(min_length=4)
    BValues: list[FiniteFloat]
    AnglesToAxesDegrees: list[FiniteFloat] = Field(min_length=3, max_length=3)
    NotPositiveDefiniteShare: FiniteFloat = Field(default=0.0, ge=0, le=1)
    Warnings: list[str]
    Model: ModelNotes | None = None
    Samples: int | None = None
    Steps: int | None = None
    Seed: int | None = None
    Sampler: str | None = None
    NoiseSigma: FiniteFloat | None = None
    Intervals: dict[str, float | str | tuple[FiniteFloat, FiniteFloat, FiniteFloat] | None] | None = None
    Inputs: dict[str, str] = Field(default_factory=dict)
    Versions: dict[str, str] = Field(default_factory=dict)
    GradientTable: list[str] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "SidecarNotes":
        if len(self.BValues) != len(self.Volumes):
            raise ValueError("BValues and Volumes differ in length")
        missing = [each is None for each in (self.Samples, self.Steps, self.Seed, self.Sampler)]
        if self.Model is not None and any(missing) and not all(missing):
            raise ValueError("a model drew samples, but Samples, Steps, Seed or Sampler is missing")
        if self.GradientTable is not None:
            if not all(map(_is_gradient, self.GradientTable)):
                raise ValueError("a line of GradientTable is not x y z b")
            if not all(0 <= volume < len(self.GradientTable) for volume in self.Volumes):
                raise ValueError("Volumes are not all in GradientTable")
        return self


def _is_gradient(line: str) -> bool:
    try:
        x, y, z, b = (float(part) for part in line.split())
    except ValueError:
        return False
    return all(map(math.isfinite, (x, y, z, b))) and b >= 0 and (b <= B0_MAX_S_PER_MM2 or any((x, y, z)))


def check_sidecar(path: Path, notes: Mapping[str, Any]) -> None:
    """Refuse a sidecar that ``tensorldm reconstruct`` would not have written, with the first thing that is wrong."""
    try:
        SidecarNotes.model_validate(dict(notes))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"'{where}': {first['msg']}" if where else first["msg"]
        what = f"it has no '{where}'" if first["type"] == "missing" else what
        raise DataError(
            f"{path}: not a reconstruction's sidecar ({what}). Give a folder that `tensorldm reconstruct` wrote; "
            "a reference, or another program's tensor, is shown with --compare."
        ) from error
