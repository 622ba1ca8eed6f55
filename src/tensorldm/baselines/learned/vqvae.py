"""MONAI's VQ-VAE with six codes at a position, and first weights that it can learn from [choice: rival-ldm].

A single code of 11 bits is little for the 384 numbers of 64 voxels, so each sixth of the latent channels of a position
has a code of its own, all from one codebook.
Axes: b batch, f channel, x y z space (of voxels or latents), n positions.
"""

from math import prod, sqrt

import torch
from einops import rearrange
from jaxtyping import Float
from monai.networks.layers.vector_quantizer import EMAQuantizer, VectorQuantizer
from monai.networks.nets.vqvae import VQVAE, VQVAEResidualUnit
from torch import Tensor, nn

from tensorldm.baselines.learned.codebook import LatentList, codes_as_buffer
from tensorldm.baselines.learned.config import LDMModel
from tensorldm.components import NUM_COMPONENTS

CODE_DECAY = 0.9
"""Of the codes' running means: between MONAI's 0.5 and 0.99, usual for large batches; dead codes show soon."""
HALVING, DOUBLING = (2, 4, 1, 1), (2, 4, 1, 1, 0)
"""Stride, kernel, dilation and padding of a level, and the output's padding on the way back."""
QUIET = 0.1
"""Share of their usual size with which the last layers of residual branches and of a decoder begin."""


class SixCodesVQVAE(VQVAE):
    """MONAI's VQ-VAE with six codes at each position of the grid, all of one codebook."""

    def __init__(self, config: LDMModel, in_channels: int, out_channels: int) -> None:
        levels = len(config.encoder_channels)
        super().__init__(
            spatial_dims=3,
            in_channels=in_channels,
            out_channels=out_channels,
            channels=config.encoder_channels,
            num_res_layers=config.residual_layers,
            num_res_channels=config.encoder_channels,
            downsample_parameters=(HALVING,) * levels,
            upsample_parameters=(DOUBLING,) * levels,
            num_embeddings=config.num_codes,
            embedding_dim=config.latent_channels,
            act="SWISH",
        )
        codebook = EMAQuantizer(3, config.num_codes, config.latent_channels // NUM_COMPONENTS, decay=CODE_DECAY)
        codes_as_buffer(codebook)
        self.quantizer = VectorQuantizer(codebook)
        _start_lively(self)

    def quantize(self, encodings: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest codes, and the commitment to them."""
        folded = rearrange(encodings, "b (six f) x y z -> (b six) f x y z", six=NUM_COMPONENTS)
        commitment, found = self.quantizer(folded)
        return rearrange(found, "(b six) f x y z -> b (six f) x y z", six=NUM_COMPONENTS), commitment


@torch.no_grad()
def _start_lively(coder: VQVAE) -> None:
    """First weights that carry a signal through, from a calm start: residual branches and the output begin small.

    Torch's own leave a third of the variance at every layer, and there are no norms here to bring it back. Where the
    output begins at random, what is learned first is silence: after a hundred steps such a coder was no better than one
    tensor for all (docs/training-log.md).
    """
    for layer in coder.modules():
        if isinstance(layer, nn.Conv3d | nn.ConvTranspose3d):
            _start(layer)
    quiet = [unit.conv2 for unit in coder.modules() if isinstance(unit, VQVAEResidualUnit)]
    for last in (*quiet, coder.decoder.blocks[-1]):
        last.get_parameter("conv.weight").mul_(QUIET)


def _start(layer: nn.Conv3d | nn.ConvTranspose3d) -> None:
    """Weights that keep the variance through a rectifier (He and others, ICCV 2015)."""
    contributions = layer.in_channels * prod(layer.kernel_size)
    if isinstance(layer, nn.ConvTranspose3d):  # of a stride's voxels each hears but one
        contributions //= prod(layer.stride)
    layer.weight.normal_(std=sqrt(2 / contributions))
    assert layer.bias is not None
    layer.bias.zero_()


def sixths(latents: LatentList) -> Float[Tensor, "_ sixth"]:
    """What has a code of its own: each position's latents, a sixth of their channels at a time."""
    return rearrange(latents, "n (six f) -> (n six) f", six=NUM_COMPONENTS)
