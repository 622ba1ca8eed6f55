"""A whole training run: the model, the data, five stages, and everything around them."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from tensorldm.config.model import ModelConfig
from tensorldm.config.reading import Strict
from tensorldm.config.training import AverageConfig, DataConfig, KeepConfig, StageConfig, ValidationConfig

StageKey = Literal["0", "1", "2", "3", "4", "5"]
STAGES: tuple[StageKey, ...] = ("1", "2", "3", "4", "5")
"""The paper's. Stage 0, the expectation, comes before them where a model has one."""


class HardwareConfig(Strict):
    """Where it runs."""

    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = Field(default=1, ge=1, description="per node; torchrun's number wins")
    nodes: int = Field(default=1, ge=1)
    precision: Literal["auto", "32-true", "bf16-mixed"] = Field(
        default="auto", description="auto: bf16 on a GPU, float32 on a CPU"
    )
    channels_last: bool = Field(default=False, description="keep kernels and features channels-last in memory")


class RunSettings(Strict):
    """What every method's run has; the model and the stages are the method's own and are narrowed by its schema."""

    seed: int = Field(default=0, ge=0)
    model: Strict
    data: DataConfig = DataConfig()
    stages: Mapping[Any, StageConfig]
    average: AverageConfig = AverageConfig()
    validation: ValidationConfig = ValidationConfig()
    keep: KeepConfig = KeepConfig()
    hardware: HardwareConfig = HardwareConfig()

    @property
    def stage_numbers(self) -> list[int]:
        """Every stage that this model has, in order."""
        return sorted(int(key) for key in self.stages)


class RunConfig(RunSettings):
    """What ``tensorldm train`` reads."""

    model: ModelConfig
    stages: dict[StageKey, StageConfig]

    @field_validator("stages")
    @classmethod
    def _all_five(cls, stages: dict[StageKey, StageConfig]) -> dict[StageKey, StageConfig]:
        missing = [key for key in STAGES if key not in stages]
        if missing:
            raise ValueError(f"stage {', '.join(missing)} is missing; all five are always described")
        return stages

    @model_validator(mode="after")
    def _expectation_has_a_stage(self) -> "RunConfig":
        if (self.model.expectation is not None) != ("0" in self.stages):
            raise ValueError("stage 0 trains the expectation: describe both or neither")
        return self
