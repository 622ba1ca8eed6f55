"""CycleGAN in 3D: tensors from scans and scans from tensors, each of which undoes the other [choice: rival-cyclegan].

J.-Y. Zhu, T. Park, P. Isola, A. A. Efros: Unpaired image-to-image translation using cycle-consistent adversarial
networks, ICCV 2017. No loss compares a generated tensor with the reference of its own scan: that is the method.
Axes: b batch, f channel, x y z space.
"""

import torch
from torch import Tensor

from tensorldm.baselines.learned.adversarial import AdversarialLoss, Handover, Volume, patch_critic, translator
from tensorldm.baselines.learned.config import CycleGANModel
from tensorldm.baselines.learned.objective import Positions, RivalObjective, mean_inside
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.baselines.learned.told import NUM_CHANNELS, NUM_IMAGES, NUM_SETTINGS, Told
from tensorldm.batch import Batch
from tensorldm.components import NUM_COMPONENTS
from tensorldm.config.training import StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.shapes import Components, Masks
from tensorldm.training.recording import Evaluated, Gathered


class CycleGAN(Rival):
    """Two U-Nets and two PatchGANs. Both ways are told the gradients: a scan follows from a tensor only with them."""

    training_only = ("scan_generator.", "tensor_critic.", "scan_critic.")

    def __init__(self, config: CycleGANModel, scaling: TensorScaling) -> None:
        super().__init__(scaling)
        channels, groups = config.channels, config.norm_groups
        self.tensor_generator = translator(NUM_CHANNELS, NUM_COMPONENTS, channels=channels, norm_groups=groups)
        self.scan_generator = translator(
            NUM_COMPONENTS + NUM_SETTINGS, NUM_IMAGES, channels=channels, norm_groups=groups
        )
        self.tensor_critic = patch_critic(NUM_COMPONENTS, config.critic, norm_groups=groups)
        self.scan_critic = patch_critic(NUM_IMAGES, config.critic, norm_groups=groups)
        self.cycle_weight = config.cycle_weight
        side = 2 ** (len(channels) - 1)
        self._multiples = (side, side, side)

    @property
    def multiples(self) -> tuple[int, int, int]:
        """What the generators halve."""
        return self._multiples

    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:  # noqa: ARG002  nothing is drawn
        """Both generators, then both critics."""
        handover = Handover()
        return [
            Goal("generators", CycleObjective(self, handover), ("tensor_generator.", "scan_generator.")),
            Goal("critics", CriticsObjective(self, handover), ("tensor_critic.", "scan_critic.")),
        ]

    def to_tensor(self, images: Volume, told: Told) -> Components:
        """Components in network units from the images of a scan, measured or made."""
        found: Tensor = self.tensor_generator(torch.cat([images, told.settings], dim=1))
        return found * told.inside

    def to_images(self, components: Components, told: Told) -> Volume:
        """The images of a scan with these gradients from components, measured or made."""
        found: Tensor = self.scan_generator(torch.cat([components, told.settings], dim=1))
        return found * told.inside

    def estimate(self, told: Told, sampling: Sampling) -> Components:  # noqa: ARG002  it gives one tensor
        """The tensor that the scan is translated to."""
        return self.scaling.unscale(self.to_tensor(told.images, told).float())


class CycleObjective(RivalObjective):
    """Fool both critics; come back to the scan and to the tensor."""

    def __init__(self, rival: CycleGAN, handover: Handover) -> None:
        super().__init__(rival.scaling)
        self.rival, self.handover, self.loss = rival, handover, AdversarialLoss("least_squares")

    def gather(self, batch: Batch, positions: Positions) -> Gathered:  # noqa: ARG002  nothing is drawn
        """Scan and tensor."""
        told, tensors = self.read(batch)
        return told.channels, told.mask, tensors

    def evaluate(self, channels: Volume, mask: Masks, tensors: Components) -> Evaluated:
        """Adversarial terms and cycles; what was made is kept."""
        told = Told(channels, mask)
        made_tensors, made_images = self.rival.to_tensor(told.images, told), self.rival.to_images(tensors, told)
        adversarial = self.loss.fool(self.rival.tensor_critic, made_tensors) + self.loss.fool(
            self.rival.scan_critic, made_images
        )
        images_again = self.rival.to_images(made_tensors, told)
        tensors_again = self.rival.to_tensor(made_images, told)
        cycle = mean_inside((images_again.float() - told.images).abs(), mask) + mean_inside(
            (tensors_again.float() - tensors).abs(), mask
        )
        loss = adversarial + self.rival.cycle_weight * cycle
        logs = {"adversarial": adversarial.detach(), "cycle": cycle.detach()}
        return Evaluated(loss, logs, (made_tensors.detach(), made_images.detach()))

    def finish(self, positions: Positions, *kept: Tensor) -> None:
        """The critics are to see these."""
        self.handover.give(positions, *kept)


class CriticsObjective(RivalObjective):
    """Tell tensors from made tensors, and scans from made scans."""

    def __init__(self, rival: CycleGAN, handover: Handover) -> None:
        super().__init__(rival.scaling)
        self.rival, self.handover, self.loss = rival, handover, AdversarialLoss("least_squares")

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """Tensors and images, measured and made."""
        told, tensors = self.read(batch)
        made_tensors, made_images = self.handover.take(
            positions, lambda: (self.rival.to_tensor(told.images, told), self.rival.to_images(tensors, told))
        )
        return tensors, told.images, made_tensors.to(tensors), made_images.to(tensors)

    def evaluate(self, tensors: Components, images: Volume, made_tensors: Components, made_images: Volume) -> Evaluated:
        """The sum of both critics' losses."""
        on_tensors = self.loss.tell_apart(self.rival.tensor_critic, tensors, fake=made_tensors)
        on_images = self.loss.tell_apart(self.rival.scan_critic, images, fake=made_images)
        return Evaluated(on_tensors + on_images, {"tensors": on_tensors.detach(), "scans": on_images.detach()})
