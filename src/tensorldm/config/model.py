"""Sizes and forms of the model. Widths run from fine to coarse; every level but the first halves the grid."""

from typing import Literal

from pydantic import Field, model_validator

from tensorldm.config.reading import Strict

Widths = tuple[int, ...]
CrossAttention = Literal["gated", "literal", "none"]
"""gated: let in by a gate that starts shut; literal: the paper's plain form; none: the ablation without it."""


class AutoencoderConfig(Strict):
    """Phase I: encoders, codebooks, conditioner, decoders. Patches [choice: patch] are ours."""

    latent_channels: int = Field(gt=0)
    num_codes: int = Field(gt=1, description="per codebook; there is one for each group of components")
    patch: Literal[1, 2, 4] = Field(
        default=1, description="voxels a side that the finest level takes as one; 1 in the paper"
    )
    encoder_channels: Widths = Field(min_length=2)
    conditioner: Literal["paper", "directional"] = Field(
        description="paper: a pathway for each of b0 x y z; directional: any volumes, told their gradients"
    )
    conditioner_channels: Widths = Field(min_length=2)
    gradient_channels: int = Field(default=32, gt=0, description="directional form: entries of the gradient embedding")
    decoder_channels: Widths = Field(min_length=2)
    decoder_blocks: int = Field(default=1, ge=1)
    head_channels: int = Field(default=16, gt=0, description="channels of an attention head")
    attention_levels: tuple[int, ...] = Field(description="decoder levels with window attention; 0 is the finest")
    fusion_level: int = Field(default=0, ge=0, description="decoder level of the joint fusion MLP")
    end_channels: int = Field(gt=0, description="width of the decoder's end; 256 in the paper")

    @model_validator(mode="after")
    def _levels_match(self) -> "AutoencoderConfig":
        levels = len(self.decoder_channels)
        if {len(self.encoder_channels), len(self.conditioner_channels)} != {levels}:
            raise ValueError("encoder, conditioner and decoder need the same number of levels")
        if any(not 0 <= level < levels for level in (*self.attention_levels, self.fusion_level)):
            raise ValueError(f"levels are numbered 0 to {levels - 1}")
        _check_heads(self.decoder_channels, self.attention_levels, self.head_channels)
        return self


class UNetConfig(Strict):
    """Phase II: experts and the denoising U-Net."""

    channels: Widths = Field(min_length=1)
    blocks: int = Field(default=1, ge=1)
    expert_channels: int = Field(gt=0)
    routing: Literal["learned", "uniform"] = Field(default="learned", description="uniform: the ablation without MoE")
    embedding_channels: int = Field(default=16, gt=0, multiple_of=2)
    time_channels: int = Field(default=128, gt=0, multiple_of=2)
    head_channels: int = Field(default=16, gt=0)
    attention_levels: tuple[int, ...]

    @model_validator(mode="after")
    def _levels_match(self) -> "UNetConfig":
        if any(not 0 <= level < len(self.channels) for level in self.attention_levels):
            raise ValueError(f"levels are numbered 0 to {len(self.channels) - 1}")
        _check_heads(self.channels, self.attention_levels, self.head_channels)
        return self


class DiffusionConfig(Strict):
    """The forward process [E6] and what the network predicts of it."""

    num_steps: int = Field(default=1000, gt=1)
    first_beta: float = Field(default=1e-4, gt=0, lt=1)
    last_beta: float = Field(default=2e-2, gt=0, lt=1)
    prediction: Literal["noise", "velocity", "clean"] = "noise"


class ScalingConfig(Strict):
    """mm²/s that a network sees as 1."""

    diagonal: float = Field(default=1e-3, gt=0, lt=1)
    off_diagonal: float = Field(default=0.5e-3, gt=0, lt=1)


class ExpectationConfig(Strict):
    """The direct regression that diffusion starts from; not in the paper."""

    patch: Literal[1, 2, 4] = Field(default=1, description="voxels a side that the finest level takes as one")
    channels: Widths = Field(min_length=2)
    blocks: Widths = Field(description="residual blocks of each level, on each side of the U")
    vector_channels: int = Field(default=128, gt=0, description="entries of the embedding of the scan's gradients")
    detail_channels: int = Field(default=0, ge=0, description="width of a last look at full resolution; 0 for none")
    mirrored: bool = Field(default=False, description="at inference, the mean of the scan's and its mirror image's")

    @model_validator(mode="after")
    def _levels_match(self) -> "ExpectationConfig":
        if len(self.channels) != len(self.blocks) or min(self.blocks) < 1:
            raise ValueError("each level of the expectation needs its number of blocks, at least 1")
        return self


class ModelConfig(Strict):
    """The whole model; together with the weights it is all that reconstruction needs."""

    autoencoder: AutoencoderConfig
    unet: UNetConfig
    diffusion: DiffusionConfig = DiffusionConfig()
    scaling: ScalingConfig = ScalingConfig()
    decoder_cca: CrossAttention = Field(default="gated", description="of Stage 3, with the fusion MLP")
    unet_cca: CrossAttention = Field(default="gated", description="of Stage 5")
    decoder_condition: Literal["anatomy", "moe"] = Field(
        default="anatomy",
        description="what the decoders read: the anatomy, fused; or from Stage 4 on the experts' mixture, moe",
    )
    decodes: Literal["codes", "latents"] = Field(
        default="codes",
        description="what is decoded of a sample: the codes nearest to its latents (the paper), or these as they are",
    )
    expectation: ExpectationConfig | None = Field(
        default=None, description="regress the mean first and diffuse the rest; null is the paper's form"
    )

    spread_channels: int = Field(
        default=0,
        ge=0,
        description="width of what tells how far tensors lie from the expectation, which latents are relative to; "
        "0 for none",
    )

    @model_validator(mode="after")
    def _expectation_reads_gradients(self) -> "ModelConfig":
        if self.expectation is not None and self.autoencoder.conditioner == "paper":
            raise ValueError("an expectation is told its gradients, so it needs the directional conditioner")
        if self.spread_channels and self.expectation is None:
            raise ValueError("spread_channels is of differences from an expectation, and there is none")
        return self


def _check_heads(channels: Widths, levels: tuple[int, ...], head: int) -> None:
    odd = [level for level in levels if channels[level] % head]
    if odd:
        raise ValueError(f"{channels[odd[0]]} channels at level {odd[0]} do not divide into heads of {head}")
