"""SuperDTI: a 2D U-Net with residual learning from slices to maps, by squared error [choice: rival-superdti].

H. Li and others: SuperDTI, ultrafast DTI and fiber tractography with deep learning, Magnetic Resonance in Medicine
2021. The tensor comes from the maps by E13, in the published form without signs or in one with them (`maps`).
Axes: b batch, n slice, f channel, x y z space.
"""

from monai.networks.nets.unet import UNet
from torch import Tensor, nn

from tensorldm.baselines.learned.config import SuperDTIModel
from tensorldm.baselines.learned.maps import maps_of, num_maps, tensor_of
from tensorldm.baselines.learned.objective import Positions, RivalObjective
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.baselines.learned.slices import Slices, among_all, by_slices, draw_slices, slices_with_brain, take_slices
from tensorldm.baselines.learned.told import NUM_CHANNELS, Told
from tensorldm.batch import Batch
from tensorldm.config.training import StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.shapes import Components
from tensorldm.training.recording import Evaluated, Gathered


class SuperDTI(Rival):
    """One network for all maps."""

    def __init__(self, config: SuperDTIModel, scaling: TensorScaling) -> None:
        super().__init__(scaling)
        width = config.channels[0]
        unet = UNet(
            spatial_dims=2,
            in_channels=NUM_CHANNELS,
            out_channels=width,
            channels=config.channels,
            strides=(2,) * (len(config.channels) - 1),
            num_res_units=config.residual_units,
            act="relu",
            norm=("group", {"num_groups": config.norm_groups}),
        )
        self.network = nn.Sequential(unet, nn.Conv2d(width, num_maps(config.signs), 1))
        self.num_slices, self.signs = config.slices, config.signs
        self._side = 2 ** (len(config.channels) - 1)

    @property
    def multiples(self) -> tuple[int, int, int]:
        """Slices are halved, their number is not."""
        return self._side, self._side, 1

    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:  # noqa: ARG002  one stage, no options
        """Regress the maps."""
        return [Goal("model", MapObjective(self, seed=seed), ("network.",))]

    def estimate(self, told: Told, sampling: Sampling) -> Components:
        """Maps of every slice that holds brain, then E13."""
        held, height = slices_with_brain(told.mask), told.mask.shape[-1]
        maps = by_slices(self.network, told.channels[..., held], at_once=sampling.slices_at_once)
        return among_all(tensor_of(maps), held, height=height)


class MapObjective(RivalObjective):
    """Squared error of the maps, mean over maps and over the brain in the drawn slices."""

    draws = True

    def __init__(self, rival: SuperDTI, *, seed: int) -> None:
        super().__init__(rival.scaling, seed=seed)
        self.rival = rival

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """Slices drawn from each head: what is told, the maps, and where there is brain."""
        told, _ = self.read(batch)
        random = self.generators(positions, batch.mask.device)
        places = draw_slices(batch.mask, self.rival.num_slices, random)
        target = take_slices(maps_of(batch.components, batch.mask, signs=self.rival.signs), places)
        return take_slices(told.channels, places), target, take_slices(told.inside, places)

    def evaluate(self, scan: Slices, target: Slices, inside: Slices) -> Evaluated:
        """Loss of these slices."""
        loss = squared_error(self.rival.network(scan).float(), target, inside)
        return Evaluated(loss, {"rms": loss.detach().sqrt()})


def squared_error(found: Tensor, target: Tensor, inside: Tensor) -> Tensor:
    """Mean of the squared error over channels and the pixels inside."""
    return ((found - target).square() * inside).sum() / (inside.sum().clamp_min(1) * found.shape[1])
