"""What the adversarial rivals share: PatchGANs, their losses, and fakes handed from one player to the next.

A step is two turns: the generator's, then the critic's on the very fakes of the generator's turn (the order of
CycleGAN). Fakes live within a step, so nothing of them has to be kept for resuming.
Axes: b batch, f channel, x y z space.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from monai.losses.adversarial_loss import PatchAdversarialLoss
from monai.networks.nets.patchgan_discriminator import PatchDiscriminator
from monai.networks.nets.unet import UNet
from torch import Tensor, nn

from tensorldm.baselines.learned.config import Critic
from tensorldm.baselines.learned.objective import Positions

Criterion = Literal["bce", "least_squares"]
Volume = Float[Tensor, "b _ x y z"]
LEAK = 0.2
"""Slope of the leaky ReLU below zero, in generators and critics of the originals."""


def patch_critic(in_channels: int, config: Critic, *, norm_groups: int) -> nn.Module:
    """A 3D PatchGAN; its last output holds a logit for each patch."""
    critic: nn.Module = PatchDiscriminator(
        spatial_dims=3,
        in_channels=in_channels,
        channels=config.channels,
        num_layers_d=config.layers,
        norm=("group", {"num_groups": norm_groups}),
    )
    return critic


def translator(in_channels: int, out_channels: int, *, channels: tuple[int, ...], norm_groups: int) -> nn.Module:
    """The U-Net of pix2pix in 3D: strided convolutions down, transposed ones up, skips between, linear at the end.

    Groups are normalised, not instances: with one head a batch the originals' batch norm is an instance norm, which
    takes a constant out of every channel and with it the channels that tell the directions [choice: rival-norm].
    """
    network: nn.Module = UNet(
        spatial_dims=3,
        in_channels=in_channels,
        out_channels=out_channels,
        channels=channels,
        strides=(2,) * (len(channels) - 1),
        num_res_units=0,
        act=("leakyrelu", {"negative_slope": LEAK}),
        norm=("group", {"num_groups": norm_groups}),
    )
    return network


class _LabelsInPlace(PatchAdversarialLoss):
    """MONAI makes its labels on the host and copies them; a GPU would wait for that in every step."""

    def get_target_tensor(self, input: Tensor, target_is_real: bool) -> Tensor:
        """1 for real, 0 for made, where the logits are."""
        return torch.full_like(input, self.real_label if target_is_real else self.fake_label)


class AdversarialLoss:
    """MONAI's loss in float32: a sigmoid's logarithm does not survive half precision."""

    def __init__(self, criterion: Criterion) -> None:
        self._loss = _LabelsInPlace(criterion=criterion, no_activation_leastsq=True)

    def fool(self, critic: nn.Module, fake: Volume) -> Tensor:
        """The generator's: every patch of a fake should count as real."""
        return self._of(critic(fake)[-1], real=True, for_critic=False)

    def tell_apart(self, critic: nn.Module, real: Volume, *, fake: Volume) -> Tensor:
        """The critic's: the mean over real and fake patches."""
        on_real = self._of(critic(real)[-1], real=True, for_critic=True)
        on_fake = self._of(critic(fake.detach())[-1], real=False, for_critic=True)
        return (on_real + on_fake) / 2

    def _of(self, logits: Tensor, *, real: bool, for_critic: bool) -> Tensor:
        with torch.autocast(logits.device.type, enabled=False):
            loss: Tensor = self._loss(logits.float(), target_is_real=real, for_discriminator=for_critic)
        return loss


class Handover:
    """Fakes on their way from the generator's turn to the critic's, by the samples they were made from."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, ...], tuple[Volume, ...]] = {}

    def give(self, positions: Positions, *fakes: Volume) -> None:
        """Leave fakes for the critic."""
        self._waiting[tuple(positions.tolist())] = tuple(fake.detach() for fake in fakes)

    def take(self, positions: Positions, make: Callable[[], tuple[Volume, ...]]) -> tuple[Volume, ...]:
        """The fakes of these samples, each once; made here where nobody left any."""
        found = self._waiting.pop(tuple(positions.tolist()), None)
        if found is not None:
            return found
        with torch.no_grad():
            return make()
