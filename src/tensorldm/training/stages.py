"""The five stages as rows of one table: data, what trains, which parts are joined, the objective, the start.

A name pattern is a regular expression on parameter names. What no pattern names is frozen, buffers included: the
codebooks follow the data in Stages 1 and 2 alone, the latents' scale is set once, before Stage 4 [choice: frozen].
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from tensorldm.build import build_scaling
from tensorldm.config.model import CrossAttention, ModelConfig
from tensorldm.config.run import RunConfig, RunSettings
from tensorldm.config.training import StageConfig
from tensorldm.errors import ConfigError
from tensorldm.model import TensorLDM
from tensorldm.networks.attention import AttentionMode
from tensorldm.networks.quantizer import VectorQuantizer
from tensorldm.training.muon import ORTHOGONAL, Muon
from tensorldm.training.objectives import (
    DecodingObjective,
    DenoisingObjective,
    ExpectationObjective,
    ReconstructionObjective,
)

GATE = re.compile(r"\.attention\.gate$")
JOINT_ONLY = r"\.attention\.(gate|mix_\w+|direction_bias)$"
"""Parameters of cross-component attention that a block at work by itself does not use."""
OPTIMIZERS = {"adam": Adam, "adamw": AdamW, "muon": Muon}
DIFFUSION_OBJECTIVES: Final = {"anatomy": DenoisingObjective, "moe": DecodingObjective}
"""What Phase II minimises, by what the decoders read in it."""
MakeObjective = Callable[[TensorLDM, RunConfig, int], nn.Module]


@dataclass(frozen=True)
class StageRow:
    """One stage of the paper."""

    number: int
    title: str
    data: Literal["patches", "volumes"]
    trains: str
    """Parameters that move."""
    except_for: str
    """Parameters named by ``trains`` that still do not move: they are not in use yet."""
    objective: MakeObjective
    starts_from: tuple[int, ...]
    """Stages whose bundle it may start from, the last finished one is taken; with none it may start afresh."""
    fresh: bool = False
    joins_decoder: bool = False
    joins_unet: bool = False
    switches_decoders: bool = False
    """Whether the decoders read what the settings say from here on; until then it is Φ_X."""
    moves_codebook: bool = False
    sets_latent_scale: bool = False
    samples: bool = False
    """Whether validation samples from noise; else it encodes and decodes the reference."""
    expects: bool = False
    """Whether validation looks at the expected tensor alone."""


def _expect(model: TensorLDM, config: RunConfig, stage: int) -> nn.Module:
    settings, scaling = settings_of(config, stage), build_scaling(config.model)
    return ExpectationObjective(model, scaling=scaling, lem_weight=settings.lem_weight, error=settings.error)


def _reconstruct(model: TensorLDM, config: RunConfig, stage: int) -> nn.Module:  # noqa: ARG001  one shape for all rows
    return ReconstructionObjective(model, scaling=build_scaling(config.model))


def _reconstruct_jointly(model: TensorLDM, config: RunConfig, stage: int) -> nn.Module:
    weight = settings_of(config, stage).lem_weight
    return ReconstructionObjective(model, scaling=build_scaling(config.model), lem_weight=weight)


def _denoise(model: TensorLDM, config: RunConfig, stage: int) -> nn.Module:
    objective, scaling = DIFFUSION_OBJECTIVES[config.model.decoder_condition], build_scaling(config.model)
    return objective(model, scaling=scaling, seed=config.seed, stage=stage, summed=False)


def _denoise_jointly(model: TensorLDM, config: RunConfig, stage: int) -> nn.Module:
    objective, scaling = DIFFUSION_OBJECTIVES[config.model.decoder_condition], build_scaling(config.model)
    return objective(model, scaling=scaling, seed=config.seed, stage=stage, summed=True)


EXPECTATION = r"^expectation\."
AUTOENCODER = r"^(autoencoder|spread)\."
NOT_JOINT = rf"{JOINT_ONLY}|\.fusion\."
JOINT_REFINEMENT = r"^autoencoder\.decoder\.(levels\.\d+\.attention\.|fusion\.|end\.|norm\.|head\.)"
"""[choice: stage-3-parts]"""
DECODER_FILM = r"^autoencoder\.decoder\..*\.film\.|^expert_levels\."
"""How the decoders read Φ^d; without a use in Phase II where they keep Φ_X."""
DIFFUSION = rf"^(unet|experts)\.|{DECODER_FILM}"
ATTENTION_AND_FILM = rf"^unet\..*\.(attention\.\d+\.attention|film)\.|{DECODER_FILM}"
"""[choice: stage-5-film]"""
NOTHING = r"(?!)"

STAGES = {
    row.number: row
    for row in (
        StageRow(0, "the expected tensor", "patches", EXPECTATION, NOTHING, _expect, (), fresh=True, expects=True),
        StageRow(1, "patches", "patches", AUTOENCODER, NOT_JOINT, _reconstruct, (0,), fresh=True, moves_codebook=True),
        StageRow(
            2, "whole volumes", "volumes", AUTOENCODER, NOT_JOINT, _reconstruct, (0, 1), fresh=True, moves_codebook=True
        ),
        StageRow(
            3,
            "joint refinement",
            "volumes",
            JOINT_REFINEMENT,
            NOTHING,
            _reconstruct_jointly,
            (1, 2),
            joins_decoder=True,
        ),
        StageRow(
            4,
            "denoising, components apart",
            "volumes",
            DIFFUSION,
            JOINT_ONLY,
            _denoise,
            (1, 2, 3),
            switches_decoders=True,
            sets_latent_scale=True,
            samples=True,
        ),
        StageRow(
            5,
            "denoising, components together",
            "volumes",
            ATTENTION_AND_FILM,
            NOTHING,
            _denoise_jointly,
            (4,),
            joins_unet=True,
            switches_decoders=True,
            samples=True,
        ),
    )
}


def settings_of(config: RunSettings, stage: int) -> StageConfig:
    """The settings of a stage by its number."""
    return config.stages[str(stage)]


def joint_modes(
    row: StageRow, config: ModelConfig, *, before: tuple[AttentionMode, AttentionMode]
) -> tuple[AttentionMode, AttentionMode]:
    """How decoder and U-Net join the components from this stage on; what a stage does not join stays as it was."""
    decoder = attention_mode(config.decoder_cca) if row.joins_decoder else before[0]
    unet = attention_mode(config.unet_cca) if row.joins_unet else before[1]
    return decoder, unet


def switch_decoders(model: TensorLDM, row: StageRow, *, config: ModelConfig) -> None:
    """Let the decoders read what this stage trains them to; another stage leaves that as it was."""
    if row.switches_decoders:
        model.set_decoder_condition(config.decoder_condition)


def attention_mode(setting: CrossAttention) -> AttentionMode:
    """The networks' word for a setting."""
    return "off" if setting == "none" else setting


def set_trainable(model: TensorLDM, row: StageRow, *, config: ModelConfig) -> dict[str, nn.Parameter]:
    """Freeze all but the stage's parameters and buffers; the parameters that move, by name."""
    unused = _unused(row, config)
    moving = {}
    for name, parameter in model.named_parameters():
        moves = bool(re.search(row.trains, name)) and not re.search(row.except_for, name) and not unused.search(name)
        parameter.requires_grad_(moves)
        if moves:
            moving[name] = parameter
    if not moving:
        raise ConfigError(f"Stage {row.number} would train nothing with these settings. Leave it out with --stages.")
    for module in model.modules():
        if isinstance(module, VectorQuantizer):
            module.frozen = not row.moves_codebook
    return moving


def make_optimizer(moving: dict[str, nn.Parameter], settings: StageConfig) -> tuple[Optimizer, dict[str, nn.Parameter]]:
    """The optimiser and its parameters in the order of its groups.

    Gates have a rate of their own: they start at zero and must open before anything behind them is felt. Weight
    decay is for the matrices and kernels of layers; biases, norms and embeddings have no reason to be small, nor
    have the mixing matrices, which start at the identity. [choice: decay-where]
    """
    gates = {name: p for name, p in moving.items() if GATE.search(name)}
    kernels = {name: p for name, p in moving.items() if name.endswith(".weight") and p.ndim > 1}
    others = {name: p for name, p in moving.items() if name not in gates and name not in kernels}
    groups = [
        {"params": list(members.values()), "lr": rate, "weight_decay": decay, ORTHOGONAL: members is kernels}
        for members, rate, decay in (
            (kernels, settings.learning_rate, settings.weight_decay),
            (others, settings.learning_rate, 0.0),
            (gates, settings.gate_learning_rate, 0.0),
        )
        if members
    ]
    return OPTIMIZERS[settings.optimizer](groups), {**kernels, **others, **gates}


def _unused(row: StageRow, config: ModelConfig) -> re.Pattern[str]:
    """Parameters that these settings leave without a use: they would get no gradient."""
    unused = []
    mode = config.decoder_cca if row.joins_decoder else config.unet_cca if row.joins_unet else None
    if mode == "literal":
        unused.append(GATE.pattern)
    if mode == "none":
        unused.append(NOT_JOINT)
    if row.switches_decoders and config.decoder_condition == "anatomy":
        unused.append(DECODER_FILM)
    if config.unet.routing == "uniform":
        unused.append(r"^experts\.gate\.")
    return re.compile("|".join(unused) or NOTHING)
