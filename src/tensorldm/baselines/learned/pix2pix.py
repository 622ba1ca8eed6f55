"""Pix2Pix in 3D: a U-Net that a PatchGAN judges beside the scan; adversarial loss + 100 · L1 [choice: rival-pix2pix].

P. Isola, J.-Y. Zhu, T. Zhou, A. A. Efros: Image-to-image translation with conditional adversarial networks, CVPR 2017.
Axes: b batch, f channel, x y z space.
"""

import torch
from torch import Tensor, nn

from tensorldm.baselines.learned.adversarial import (
    AdversarialLoss,
    Criterion,
    Handover,
    Volume,
    patch_critic,
    translator,
)
from tensorldm.baselines.learned.config import Pix2PixModel
from tensorldm.baselines.learned.objective import Positions, RivalObjective, mean_inside
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.baselines.learned.told import NUM_CHANNELS, Told
from tensorldm.batch import Batch
from tensorldm.components import NUM_COMPONENTS
from tensorldm.config.training import StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.shapes import Components, Masks
from tensorldm.training.recording import Evaluated, Gathered


class Translation(Rival):
    """A generator of tensors and a critic that sees them beside the scan; Pix2Pix, and ResViT with its generator."""

    training_only = ("critic.",)

    def __init__(
        self,
        generator: nn.Module,
        critic: nn.Module,
        *,
        scaling: TensorScaling,
        side: int,
        criterion: Criterion,
        pixel_weight: float,
        adversarial_weight: float = 1.0,
    ) -> None:
        super().__init__(scaling)
        self.generator, self.critic = generator, critic
        self._multiples = (side, side, side)
        self.criterion, self.pixel_weight, self.adversarial_weight = criterion, pixel_weight, adversarial_weight

    @property
    def multiples(self) -> tuple[int, int, int]:
        """What the generator halves."""
        return self._multiples

    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:  # noqa: ARG002  nothing is drawn
        """Generator, then critic."""
        handover = Handover()
        return [
            Goal("generator", GeneratorObjective(self, handover), ("generator.",)),
            Goal("critic", CriticObjective(self, handover), ("critic.",)),
        ]

    def translate(self, told: Told) -> Components:
        """Components in network units, zero outside the mask."""
        found: Tensor = self.generator(told.channels)
        return found * told.inside

    def estimate(self, told: Told, sampling: Sampling) -> Components:  # noqa: ARG002  it gives one tensor
        """The translated tensor."""
        return self.scaling.unscale(self.translate(told).float())


class GeneratorObjective(RivalObjective):
    """Fool the critic, and be near the reference."""

    def __init__(self, rival: Translation, handover: Handover) -> None:
        super().__init__(rival.scaling)
        self.rival, self.handover, self.loss = rival, handover, AdversarialLoss(rival.criterion)

    def gather(self, batch: Batch, positions: Positions) -> Gathered:  # noqa: ARG002  nothing is drawn
        """What the generator is told, and the tensor that it should give."""
        told, target = self.read(batch)
        return told.channels, told.mask, target

    def evaluate(self, channels: Volume, mask: Masks, target: Components) -> Evaluated:
        """Adversarial term and L1, weighted; the fake is kept."""
        fake = self.rival.translate(Told(channels, mask))
        adversarial = self.loss.fool(self.rival.critic, torch.cat([channels, fake], dim=1))
        pixels = mean_inside((fake.float() - target).abs(), mask)
        loss = self.rival.adversarial_weight * adversarial + self.rival.pixel_weight * pixels
        return Evaluated(loss, {"adversarial": adversarial.detach(), "l1": pixels.detach()}, (fake.detach(),))

    def finish(self, positions: Positions, *kept: Tensor) -> None:
        """The critic is to see this fake."""
        self.handover.give(positions, *kept)


class CriticObjective(RivalObjective):
    """Tell reference tensors from generated ones, each beside its scan."""

    def __init__(self, rival: Translation, handover: Handover) -> None:
        super().__init__(rival.scaling)
        self.rival, self.handover, self.loss = rival, handover, AdversarialLoss(rival.criterion)

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """What the generator was told, a reference tensor, and the generator's."""
        told, target = self.read(batch)
        (fake,) = self.handover.take(positions, lambda: (self.rival.translate(told),))
        return told.channels, target, fake.to(target)

    def evaluate(self, channels: Volume, target: Components, fake: Components) -> Evaluated:
        """The critic's loss."""
        real_pair, fake_pair = (torch.cat([channels, tensor], dim=1) for tensor in (target, fake))
        error = self.loss.tell_apart(self.rival.critic, real_pair, fake=fake_pair)
        return Evaluated(self.rival.adversarial_weight * error, {})


def build_pix2pix(config: Pix2PixModel, scaling: TensorScaling) -> Translation:
    """Pix2Pix of these sizes."""
    return Translation(
        translator(NUM_CHANNELS, NUM_COMPONENTS, channels=config.channels, norm_groups=config.norm_groups),
        patch_critic(NUM_CHANNELS + NUM_COMPONENTS, config.critic, norm_groups=config.norm_groups),
        scaling=scaling,
        side=2 ** (len(config.channels) - 1),
        criterion="bce",
        pixel_weight=config.pixel_weight,
    )
