"""A whole training run: the model, the data, five stages, and everything around them."""

from typing import Literal

from pydantic import Field, field_validator

from tensorldm.config.model import ModelConfig
from tensorldm.config.reading import Strict
from tensorldm.config.training import AverageConfig, DataConfig, KeepConfig, StageConfig, ValidationConfig

StageKey = Literal["1", "2", "3", "4", "5"]
STAGES: tuple[StageKey, ...] = ("1", "2", "3", "4", "5")


class HardwareConfig(Strict):
    """Where it runs."""

    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = Field(default=1, ge=1, description="per node; torchrun's number wins")
    nodes: int = Field(default=1, ge=1)
    precision: Literal["auto", "32-true", "bf16-mixed"] = Field(
        default="auto", description="auto: bf16 on a GPU, float32 on a CPU"
    )
    channels_last: bool = Field(default=False, description="keep kernels and features channels-last in memory")


class RunConfig(Strict):
    """What ``tensorldm train`` reads."""

    seed: int = Field(default=0, ge=0)
    model: ModelConfig
    data: DataConfig = DataConfig()
    stages: dict[StageKey, StageConfig]
    average: AverageConfig = AverageConfig()
    validation: ValidationConfig = ValidationConfig()
    keep: KeepConfig = KeepConfig()
    hardware: HardwareConfig = HardwareConfig()

    @field_validator("stages")
    @classmethod
    def _all_five(cls, stages: dict[StageKey, StageConfig]) -> dict[StageKey, StageConfig]:
        missing = [key for key in STAGES if key not in stages]
        if missing:
            raise ValueError(f"stage {', '.join(missing)} is missing; all five are always described")
        return stages
