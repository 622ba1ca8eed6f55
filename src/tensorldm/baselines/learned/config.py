"""Settings of the rivals' runs. Widths run from fine to coarse; the defaults of weights are the original papers'."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tensorldm.baselines.learned.laying import Volume
from tensorldm.config.model import DiffusionConfig, ModelConfig, ScalingConfig, Widths
from tensorldm.config.reading import Strict
from tensorldm.config.run import RunSettings
from tensorldm.config.training import StageConfig

MOST = 64
"""Of anything that is repeated: a stranger's settings may ask for a billion layers."""


class RivalModel(Strict):
    """What the settings of every rival have."""

    scaling: ScalingConfig = ScalingConfig()


class Critic(Strict):
    """A PatchGAN."""

    channels: int = Field(default=64, gt=0, description="of the first layer; each further one has twice as many")
    layers: int = Field(default=3, ge=1, le=8)


class RegressionModel(RivalModel):
    """A residual 3D U-Net that regresses the six components."""

    method: Literal["unet"]
    channels: Widths = Field(min_length=2)
    blocks: Widths = Field(description="residual blocks of each level, on each side of the U")

    @model_validator(mode="after")
    def _levels_match(self) -> "RegressionModel":
        if len(self.channels) != len(self.blocks) or min(self.blocks) < 1:
            raise ValueError("each level needs its number of blocks, at least 1")
        return self


class Pix2PixModel(RivalModel):
    """Conditional adversarial translation."""

    method: Literal["pix2pix"]
    channels: Widths = Field(min_length=2)
    norm_groups: int = Field(default=8, ge=1)
    critic: Critic = Critic()
    pixel_weight: float = Field(default=100.0, ge=0, description="lambda of L1")


class CycleGANModel(RivalModel):
    """Two translations that undo each other; it never sees which tensor belongs to which scan."""

    method: Literal["cyclegan"]
    channels: Widths = Field(min_length=2)
    norm_groups: int = Field(default=8, ge=1)
    critic: Critic = Critic()
    cycle_weight: float = Field(default=10.0, ge=0)


class ResViTModel(RivalModel):
    """A residual generator whose bottleneck holds transformers."""

    method: Literal["resvit"]
    channels: Widths = Field(min_length=3, max_length=3)
    blocks: int = Field(default=9, ge=1, le=MOST, description="of the bottleneck")
    transformer_blocks: tuple[int, ...] = Field(default=(0, 5), description="blocks of it with the transformer")
    token_channels: int = Field(gt=0)
    layers: int = Field(default=4, ge=1, le=MOST, description="of the transformer, shared by the blocks with it")
    head_channels: int = Field(default=32, gt=0)
    norm_groups: int = Field(default=8, ge=1)
    critic: Critic = Critic()
    pixel_weight: float = Field(default=100.0, ge=0)
    adversarial_weight: float = Field(default=1.0, ge=0)


class SuperDTIModel(RivalModel):
    """A 2D residual U-Net to maps."""

    method: Literal["superdti"]
    channels: Widths = Field(min_length=2)
    residual_units: int = Field(default=2, ge=1, le=MOST)
    norm_groups: int = Field(default=8, ge=1)
    slices: int = Field(default=16, ge=1, description="axial slices drawn from each head")
    signs: bool = Field(default=False, description="predict FA·v1v1ᵀ too, which keeps the signs that colour FA loses")


class DiffDTIModel(RivalModel):
    """A 2D conditional diffusion model of maps, with a transformer path beside its U-Net."""

    method: Literal["diffdti"]
    channels: Widths = Field(min_length=2)
    blocks: int = Field(default=2, ge=1, le=MOST, description="residual blocks a level")
    attention_levels: tuple[int, ...] = ()
    head_channels: int = Field(default=32, gt=0)
    norm_groups: int = Field(default=8, ge=1)
    token_channels: int = Field(gt=0)
    token_side: int = Field(default=8, ge=1, description="pixels a side of a token")
    layers: int = Field(default=4, ge=1, le=MOST, description="of the transformer")
    slices: int = Field(default=16, ge=1, description="axial slices drawn from each head")
    signs: bool = Field(default=False, description="predict FA·v1v1ᵀ too, which keeps the signs that colour FA loses")
    diffusion: DiffusionConfig = DiffusionConfig()


class LDMModel(RivalModel):
    """A plain latent diffusion model."""

    method: Literal["ldm"]
    encoder_channels: Widths = Field(min_length=2, description="of both autoencoders; each level halves the grid")
    residual_layers: int = Field(default=2, ge=1, le=MOST)
    latent_channels: int = Field(multiple_of=6, gt=0)
    num_codes: int = Field(gt=1)
    channels: Widths = Field(min_length=1)
    blocks: int = Field(default=2, ge=1, le=MOST)
    attention_levels: tuple[int, ...] = ()
    head_channels: int = Field(default=32, gt=0)
    norm_groups: int = Field(default=8, ge=1)
    diffusion: DiffusionConfig = DiffusionConfig()


class CoupledModel(RivalModel):
    """TensorLDM's autoencoder and one denoiser of all its latents."""

    method: Literal["coupled"]
    tensorldm: ModelConfig = Field(description="whose autoencoder it has; its U-Net is not used")
    channels: Widths = Field(min_length=1, description="of the denoiser")
    blocks: int = Field(default=2, ge=1, le=MOST)
    attention_levels: tuple[int, ...] = ()
    head_channels: int = Field(default=32, gt=0)
    norm_groups: int = Field(default=8, ge=1)

    @model_validator(mode="after")
    def _one_scale_and_grid(self) -> "CoupledModel":
        if self.tensorldm.scaling != self.scaling:
            raise ValueError("scaling and tensorldm.scaling are the same")
        if self.tensorldm.expectation is not None:
            raise ValueError("no stage trains an expectation here; leave tensorldm.expectation out")
        if len(self.tensorldm.unet.channels) < len(self.channels):
            raise ValueError("tensorldm.unet needs as many levels as the denoiser: volumes are padded for it")
        return self


AnyModel = Annotated[
    RegressionModel
    | Pix2PixModel
    | CycleGANModel
    | ResViTModel
    | SuperDTIModel
    | DiffDTIModel
    | LDMModel
    | CoupledModel,
    Field(discriminator="method"),
]


class RivalStage(StageConfig):
    """A stage of a rival."""

    box: Volume = Field(description="sides of the volumes in voxels; whole ones are what a scan is laid into later")
    first_moment: float = Field(default=0.9, ge=0, lt=1, description="beta 1 of Adam; adversarial training has 0.5")


class RivalRun(RunSettings):
    """What ``tensorldm train --method`` reads for a rival."""

    model: AnyModel
    stages: dict[str, RivalStage]
