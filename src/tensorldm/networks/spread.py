"""How far a tensor may lie from what is expected of it: a standard deviation for each voxel and component.

Latents then hold the difference from the expectation in units of this spread, so that they vary alike in fluid, where
little is known, and in white matter: diffusion has to learn which way tensors may differ, not how far. It is learned
with the autoencoder, by the likelihood of the reference, and no other loss moves it. [choice: spread]
Axes: b batch, a input channel, v scan vector, d component (6), x y z space.
"""

from math import log

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.components import NUM_COMPONENTS
from tensorldm.networks.expectation import INPUT_CHANNELS
from tensorldm.networks.film import ResidualBlock
from tensorldm.networks.layers import Conv, VoxelNorm
from tensorldm.shapes import Components, Masks

FIRST_SPREAD = 0.1
"""Network units, everywhere at the start; 5e-5 to 1e-4 mm²/s."""
LEAST_LOG, MOST_LOG = log(1e-3), log(10.0)


class Spread(nn.Module):
    """A look at each voxel and its near neighbours at full resolution, modulated by the scan's vector."""

    def __init__(self, channels: int, *, vector_channels: int) -> None:
        super().__init__()
        self.enter = Conv(INPUT_CHANNELS + NUM_COMPONENTS, channels)
        self.block = ResidualBlock(channels, channels, vector_channels=vector_channels)
        self.norm = VoxelNorm(channels)
        self.head = Conv(channels, NUM_COMPONENTS).start_at_zero()
        nn.init.constant_(self.head.bias, log(FIRST_SPREAD))

    def forward(
        self, inputs: Float[Tensor, "b a x y z"], expected: Components, *, mask: Masks, vector: Float[Tensor, "b 1 v"]
    ) -> Float[Tensor, "b 6 x y z"]:
        """Network units, 1 outside the mask, where there is no difference to divide.

        ``inputs`` as ``expectation_inputs`` makes them, ``vector`` the expectation's own. The expectation learns
        nothing from what is read of it here.
        """
        expected, vector = expected.detach(), vector.detach()
        known = torch.cat([inputs, expected.to(inputs)], dim=1)
        stack = self.block(self.enter(rearrange(known, "b a x y z -> b 1 a x y z")), vector=vector)
        logs = rearrange(self.head(F.silu(self.norm(stack))), "b 1 d x y z -> b d x y z")
        return torch.where(mask[:, None], logs.float().clamp(LEAST_LOG, MOST_LOG).exp(), 1.0)


def surprise(difference: Components, spread: Components, *, mask: Masks) -> Float[Tensor, " b"]:
    """-log likelihood of Gaussian differences, less its constant: mean over components and each subject's mask."""
    terms = (0.5 * (difference / spread).square() + spread.log()).mean(dim=1)
    return (terms * mask).sum(dim=(1, 2, 3)) / mask.sum(dim=(1, 2, 3)).clamp_min(1)
