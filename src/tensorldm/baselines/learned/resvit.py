"""ResViT in 3D: a residual autoencoder around aggregated residual transformer blocks [choice: rival-resvit].

O. Dalmaz, M. Yurt, T. Çukur: ResViT, residual vision transformers for multimodal medical image synthesis, IEEE TMI
2022. Nine blocks; the first and the sixth hold a transformer, whose weights they share. Least-squares adversarial loss
+ 100 · L1.
Axes: b batch, f channel, x y z space.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.baselines.learned.adversarial import patch_critic
from tensorldm.baselines.learned.config import ResViTModel
from tensorldm.baselines.learned.pix2pix import Translation
from tensorldm.baselines.learned.tokens import GridTransformer, Positions
from tensorldm.baselines.learned.told import NUM_CHANNELS
from tensorldm.components import NUM_COMPONENTS
from tensorldm.data.scaling import TensorScaling

SIDE = 8
"""Voxels a side of a token: three halvings, one in the encoder and two before the transformer."""


def _normed(convolution: nn.Module, channels: int, groups: int) -> nn.Sequential:
    return nn.Sequential(convolution, nn.GroupNorm(groups, channels), nn.ReLU())


def _halve(inner: int, outer: int, groups: int) -> nn.Sequential:
    return _normed(nn.Conv3d(inner, outer, 3, stride=2, padding=1), outer, groups)


def _double(inner: int, outer: int, groups: int) -> nn.Sequential:
    convolution = nn.ConvTranspose3d(inner, outer, 3, stride=2, padding=1, output_padding=1)
    return _normed(convolution, outer, groups)


class ConvolutionalResidual(nn.Module):
    """Two convolutions beside a skip."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _normed(nn.Conv3d(channels, channels, 3, padding=1), channels, groups),
            nn.Conv3d(channels, channels, 3, padding=1),
            nn.GroupNorm(groups, channels),
        )

    def forward(self, features: Float[Tensor, "b f x y z"]) -> Float[Tensor, "b f x y z"]:
        """Features and what the convolutions add."""
        update: Tensor = self.layers(features)
        return features + update


class ContextPath(nn.Module):
    """The transformer's side of a block: down, tokens, up, joined with the features and compressed to their width."""

    def __init__(self, channels: int, token_channels: int, *, groups: int) -> None:
        super().__init__()
        between = 2 * channels
        self.down = nn.Sequential(_halve(channels, between, groups), _halve(between, between, groups))
        self.embed = nn.Conv3d(between, token_channels, 1)
        self.positions = Positions(token_channels, axes=3)
        self.up = nn.Sequential(_double(token_channels, between, groups), _double(between, channels, groups))
        self.compress = _normed(nn.Conv3d(2 * channels, channels, 1), channels, groups)

    def forward(self, features: Float[Tensor, "b f x y z"], transformer: GridTransformer) -> Float[Tensor, "b f x y z"]:
        """Features that have seen the whole head."""
        context = self.up(transformer(self.positions(self.embed(self.down(features)))))
        joined: Tensor = self.compress(torch.cat([context, features], dim=1))
        return joined


class ResViTGenerator(nn.Module):
    """Encoder, aggregated residual transformer blocks, decoder."""

    def __init__(self, config: ResViTModel) -> None:
        super().__init__()
        fine, middle, coarse = config.channels
        groups = config.norm_groups
        self.encoder = nn.Sequential(
            _normed(nn.Conv3d(NUM_CHANNELS, fine, 7, padding=3), fine, groups),
            _halve(fine, middle, groups),
            _normed(nn.Conv3d(middle, coarse, 3, padding=1), coarse, groups),
        )
        self.transformer = GridTransformer(
            config.token_channels, layers=config.layers, head_channels=config.head_channels
        )
        self.contexts = nn.ModuleDict(
            {
                str(index): ContextPath(coarse, config.token_channels, groups=groups)
                for index in config.transformer_blocks
            }
        )
        self.residuals = nn.ModuleList(ConvolutionalResidual(coarse, groups) for _ in range(config.blocks))
        self.decoder = nn.Sequential(
            _normed(nn.Conv3d(coarse, middle, 3, padding=1), middle, groups),
            _double(middle, fine, groups),
            nn.Conv3d(fine, NUM_COMPONENTS, 7, padding=3),
        )

    def forward(self, channels: Float[Tensor, "b _ x y z"]) -> Float[Tensor, "b 6 x y z"]:
        """Components in network units."""
        features = self.encoder(channels)
        for index, residual in enumerate(self.residuals):
            if str(index) in self.contexts:
                features = self.contexts[str(index)](features, self.transformer)
            features = residual(features)
        found: Tensor = self.decoder(features)
        return found


def build_resvit(config: ResViTModel, scaling: TensorScaling) -> Translation:
    """ResViT of these sizes."""
    return Translation(
        ResViTGenerator(config),
        patch_critic(NUM_CHANNELS + NUM_COMPONENTS, config.critic, norm_groups=config.norm_groups),
        scaling=scaling,
        side=SIDE,
        criterion="least_squares",
        pixel_weight=config.pixel_weight,
        adversarial_weight=config.adversarial_weight,
    )
