"""A rival through the door of `reconstruct`: the scan as four volumes, samples from noise keyed as TensorLDM's."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.baselines.learned.bundles import RivalInfo, load_rival
from tensorldm.baselines.learned.catalogue import RIVALS
from tensorldm.baselines.learned.rival import Rival, Sampling
from tensorldm.reconstruct.engine import Traits, WorkingScan
from tensorldm.reconstruct.settings import DEFAULT_SAMPLES, Settings
from tensorldm.reconstruct.uncertainty import LEVEL, Calibration
from tensorldm.rng import generator


@dataclass(eq=False)
class RivalEngine:
    """A rival's bundle on a device."""

    traits: Traits
    rival: Rival
    info: RivalInfo
    device: torch.device
    settings: Settings

    @property
    def num_samples(self) -> int:
        """How many are drawn; a deterministic rival gives one."""
        return (self.settings.samples or DEFAULT_SAMPLES) if self.traits.samples else 1

    @property
    def notes(self) -> Mapping[str, Any]:
        """Which bundle, and how it was sampled."""
        known: dict[str, Any] = {
            "Method": self.traits.name,
            "Model": {
                "Title": self.info.card.title,
                "WeightsSHA256": self.info.weights_sha256,
                "MadeBy": self.info.made_by,
                "Stages": list(self.info.card.stages),
            },
            "Device": self.device.type,
        }
        if self.traits.samples:
            known |= {
                "Seed": self.settings.seed,
                "Samples": self.num_samples,
                "Steps": self.settings.steps,
                "Sampler": self.settings.sampler,
                "Intervals": {"Level": LEVEL, **self.info.intervals.model_dump()},
            }
        return known

    @property
    def calibration(self) -> Calibration:
        """As the bundle holds it."""
        return Calibration(**self.info.intervals.model_dump())

    def estimate(self, scan: WorkingScan) -> Float[Tensor, "k v 6"]:
        """Samples of the tensor inside the mask."""

        def here(values: Tensor) -> Tensor:
            return values.float().to(self.device)[None]

        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            components = self.rival.reconstruct(
                here(scan.dwi / scan.b0_scale),
                here(scan.bvals),
                directions=here(scan.directions),
                mask=scan.mask.to(self.device)[None],
                voxel_size=here(torch.tensor(scan.voxel_size)),
                sampling=self._sampling(scan.key),
            )
        return rearrange(components.float().cpu()[:, :, scan.mask], "k d v -> k v d").double()

    def _sampling(self, key: str) -> Sampling:
        def noise(number: int, shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=generator(self.settings.seed, "noise", key, number))

        return Sampling(
            noise, num_samples=self.num_samples, num_steps=self.settings.steps, sampler=self.settings.sampler
        )


def rival_traits(name: str) -> Traits:
    """What the pipeline has to know of a rival, from its name alone."""
    return Traits(name, voxelwise=False, fixed_input=False, samples=RIVALS[name].stochastic, four_volumes=True)


def load_rival_engine(folder: Path, *, device: torch.device, settings: Settings) -> RivalEngine:
    """A rival's bundle, ready on the device."""
    rival, info = load_rival(folder, device)
    return RivalEngine(rival_traits(info.method), rival, info, device, settings)
