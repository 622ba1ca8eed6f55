"""How a stage is trained: optimiser, batch, schedule, averaging; and what is measured, kept and logged meanwhile.

What the paper does not say of them is settled here [choice: optimiser].
"""

from typing import Literal

from pydantic import Field, model_validator

from tensorldm.config.reading import Strict

Box = tuple[int, int, int]


ErrorKind = Literal["absolute", "squared"]


class StageConfig(Strict):
    """One stage. The paper's rates are its defaults; steps and boxes are always said."""

    steps: int = Field(gt=0, description="optimizer steps")
    minutes: float | None = Field(
        default=None, gt=0, description="end after so many minutes of steps, if that is sooner"
    )
    box: Box = Field(description="sides of the volumes in voxels; 32 32 32 are the paper's patches")
    batch_size: int = Field(default=1, ge=1, description="samples per process and micro-batch")
    accumulate: int = Field(default=1, ge=1, description="micro-batches per step")
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    learning_rate: float = Field(default=1e-5, gt=0)
    gate_learning_rate: float = Field(default=1e-3, gt=0, description="of the per-head gates that let CCA in")
    weight_decay: float = Field(default=0.0, ge=0, description="on matrices and kernels alone")
    warmup_steps: int = Field(default=0, ge=0)
    decay: Literal["constant", "cosine"] = "constant"
    clip: float = Field(default=1.0, gt=0, description="largest norm of the gradient")
    compile: bool = Field(default=False, description="torch.compile the blocks; takes a minute first")
    record: bool = Field(
        default=False, description="on one GPU, record a step's work and replay it; for steps too short to keep it busy"
    )
    lem_weight: float = Field(default=0.01, ge=0, description="lambda of E5; read by Stages 0 and 3")
    error: ErrorKind = Field(default="absolute", description="of regressed components; read by Stage 0")

    @model_validator(mode="after")
    def _recorded_steps_are_simple(self) -> "StageConfig":
        if self.record and self.compile:
            raise ValueError("record and compile exclude each other; give one of them")
        if self.record and self.accumulate > 1:
            raise ValueError("record needs accumulate=1, since each replay overwrites the gradients of the last")
        return self

    @model_validator(mode="after")
    def _sides_are_whole_latent_voxels(self) -> "StageConfig":
        if min(self.box) < 4:
            raise ValueError("a box has at least 4 voxels a side")
        return self


class AverageConfig(Strict):
    """The running average of the weights, which is what is kept."""

    decay: float = Field(default=0.9999, ge=0, lt=1)
    warmup: bool = Field(default=True, description="average over a tenth of the steps so far until that is longer")


class ValidationConfig(Strict):
    """The paper's measures on subjects that are never trained on."""

    every: int = Field(default=1000, gt=0, description="steps")
    subjects: int = Field(default=4, ge=0, description="0 switches validation off")
    sampler_steps: int = Field(default=25, gt=0, description="DDIM steps of Stages 4 and 5")


class KeepConfig(Strict):
    """How often the run is written down."""

    every: int = Field(default=500, gt=0, description="steps between checkpoints")
    last: int = Field(default=2, ge=2, description="checkpoints kept; two, so that one is always whole")
    log_every: int = Field(default=20, gt=0, description="steps between lines of the log")


class DataConfig(Strict):
    """What the stream of subjects is like. A store has its own subjects; the rest is for virtual ones."""

    mirror: bool = Field(default=True, description="mirror a store's heads left-right; virtual ones vary by themselves")
    cohort: str = Field(default="cohort", description="how virtual subjects vary: a preset's name or a YAML file")
    cohort_set: tuple[str, ...] = Field(default=(), description="changes to it: [protocol.snr=[15,40]]")
    anatomies: int = Field(default=64, ge=1, description="procedural heads that virtual subjects are made from")
    subjects: int = Field(default=0, ge=0, description="virtual subjects; 0 is endless")
    cache_gib: float = Field(default=0.0, ge=0, description="memory for virtual subjects that come again")
    replays: int = Field(default=1, ge=1, description="times that an endless stream's heads are learned from whole")
    replay_window: int = Field(default=64, ge=1, description="subjects that are held for that")
    replay_group: int = Field(default=8, ge=1, description="neighbours that stay together; a batch divides it")
    patches_per_subject: int = Field(default=8, ge=1, description="patches cut from one virtual head, not in a row")

    @model_validator(mode="after")
    def _windows_hold_whole_groups(self) -> "DataConfig":
        if self.replay_window % self.replay_group:
            raise ValueError("replay_window is a multiple of replay_group")
        return self
