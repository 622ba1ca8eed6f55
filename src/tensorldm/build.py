"""From settings to objects; the only place where a network's size meets the file format."""

import torch

from tensorldm.components import NUM_COMPONENTS
from tensorldm.config.model import ModelConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.diffusion import linear_schedule
from tensorldm.model import TensorLDM
from tensorldm.networks.autoencoder import Autoencoder
from tensorldm.networks.conditioner import Conditioner, FixedConditioner
from tensorldm.networks.decoder import Decoder
from tensorldm.networks.direction_conditioner import DirectionConditioner
from tensorldm.networks.encoder import Encoder
from tensorldm.networks.expectation import Expectation
from tensorldm.networks.expert_levels import ExpertLevels
from tensorldm.networks.experts import DirectionExperts, Experts, FixedExperts
from tensorldm.networks.quantizer import VectorQuantizer
from tensorldm.networks.spread import Spread
from tensorldm.networks.unet import UNet
from tensorldm.rng import derive_seed


def build_model(config: ModelConfig, seed: int = 0) -> TensorLDM:
    """The model with first weights that depend on the seed alone; the global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "first weights"))
        conditioner = _conditioner(config)
        unet = _unet(config)
        autoencoder = _autoencoder(config, conditioner)
        if config.expectation is not None:
            autoencoder.decoder.head.start_at_zero()  # the first difference from the expectation is none
        return TensorLDM(
            autoencoder,
            unet,
            experts=_experts(config, conditioner, vector_channels=unet.component_embedding.flat_vectors().shape[1]),
            schedule=linear_schedule(
                config.diffusion.num_steps, config.diffusion.first_beta, last_beta=config.diffusion.last_beta
            ),
            latent_channels=config.autoencoder.latent_channels,
            component_scales=build_scaling(config).per_component,
            prediction=config.diffusion.prediction,
            expectation=_expectation(config),
            expert_levels=_expert_levels(config),
            spread=_spread(config),
            decodes_codes=config.decodes == "codes",
        )


def build_scaling(config: ModelConfig) -> TensorScaling:
    """What one network unit is in mm²/s."""
    return TensorScaling(diagonal=config.scaling.diagonal, off_diagonal=config.scaling.off_diagonal)


def _conditioner(config: ModelConfig) -> Conditioner:
    sizes = config.autoencoder
    if sizes.conditioner == "paper":
        return FixedConditioner(sizes.conditioner_channels, patch=sizes.patch)
    return DirectionConditioner(
        sizes.conditioner_channels,
        gradient_channels=sizes.gradient_channels,
        analytic_channels=NUM_COMPONENTS if config.expectation is None else 2 * NUM_COMPONENTS,
        patch=sizes.patch,
    )


def _expectation(config: ModelConfig) -> Expectation | None:
    sizes = config.expectation
    if sizes is None:
        return None
    return Expectation(
        sizes.channels,
        num_blocks=sizes.blocks,
        vector_channels=sizes.vector_channels,
        patch=sizes.patch,
        detail_channels=sizes.detail_channels,
        mirrored=sizes.mirrored,
    )


def _spread(config: ModelConfig) -> Spread | None:
    if config.spread_channels == 0 or config.expectation is None:
        return None
    return Spread(config.spread_channels, vector_channels=config.expectation.vector_channels)


def _expert_levels(config: ModelConfig) -> ExpertLevels | None:
    if config.decoder_condition == "anatomy":
        return None
    return ExpertLevels(config.unet.expert_channels, config.autoencoder.conditioner_channels)


def _autoencoder(config: ModelConfig, conditioner: Conditioner) -> Autoencoder:
    sizes = config.autoencoder
    diagonal, off_diagonal = (
        Encoder(sizes.encoder_channels, latent_channels=sizes.latent_channels, patch=sizes.patch) for _ in range(2)
    )
    return Autoencoder(
        (diagonal, off_diagonal),
        (
            VectorQuantizer(sizes.num_codes, sizes.latent_channels),
            VectorQuantizer(sizes.num_codes, sizes.latent_channels),
        ),
        conditioner=conditioner,
        decoder=Decoder(
            sizes.decoder_channels,
            latent_channels=sizes.latent_channels,
            condition_channels=conditioner.channels,
            num_blocks=sizes.decoder_blocks,
            head_channels=sizes.head_channels,
            attention_levels=sizes.attention_levels,
            fusion_level=sizes.fusion_level,
            end_channels=sizes.end_channels,
            patch=sizes.patch,
        ),
    )


def _unet(config: ModelConfig) -> UNet:
    sizes = config.unet
    return UNet(
        sizes.channels,
        latent_channels=config.autoencoder.latent_channels,
        condition_channels=sizes.expert_channels,
        embedding_channels=sizes.embedding_channels,
        time_channels=sizes.time_channels,
        num_blocks=sizes.blocks,
        head_channels=sizes.head_channels,
        attention_levels=sizes.attention_levels,
    )


def _experts(config: ModelConfig, conditioner: Conditioner, *, vector_channels: int) -> Experts:
    sizes = config.unet
    if config.autoencoder.conditioner == "paper":
        return FixedExperts(
            conditioner.pooled_channels, sizes.expert_channels, vector_channels=vector_channels, routing=sizes.routing
        )
    return DirectionExperts(
        conditioner.pooled_channels,
        sizes.expert_channels,
        vector_channels=vector_channels,
        gradient_channels=conditioner.gradient_channels,
        routing=sizes.routing,
    )
