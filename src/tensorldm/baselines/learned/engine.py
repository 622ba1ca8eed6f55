"""A rival through the door of `reconstruct`: the scan as four volumes, samples from noise keyed as TensorLDM's.

Where a GPU's memory is too small it works in smaller pieces, down to one slice of one sample, then on the CPU.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.baselines.learned.bundles import RivalInfo, load_rival
from tensorldm.baselines.learned.catalogue import BY_SLICES, RIVALS
from tensorldm.baselines.learned.rival import Rival, Sampling
from tensorldm.baselines.learned.slices import AT_ONCE
from tensorldm.errors import ConfigError, DataWarning
from tensorldm.reconstruct.engine import Traits, WorkingScan
from tensorldm.reconstruct.settings import DEFAULT_SAMPLES, Settings
from tensorldm.reconstruct.uncertainty import LEVEL, Calibration
from tensorldm.rng import generator
from tensorldm.work.memory import freed_memory_kept


@dataclass(frozen=True)
class Pieces:
    """How much a network sees at a time; what comes out does not depend on it."""

    samples: int
    slices: int

    @property
    def smaller(self) -> "Pieces | None":
        """Half as many samples, or else half as many slices; None where there is one of each."""
        if self.samples > 1:
            return replace(self, samples=(self.samples + 1) // 2)
        return replace(self, slices=(self.slices + 1) // 2) if self.slices > 1 else None

    def __str__(self) -> str:
        samples = f"{self.samples} sample{'s' if self.samples > 1 else ''}"
        return f"{samples} and {self.slices} slices at once" if self.slices > 1 else f"{samples} at once"


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
        by_slices = self.traits.name in BY_SLICES
        pieces = Pieces(self.num_samples, AT_ONCE if by_slices else 1)
        while True:
            try:
                with freed_memory_kept(self.device.type):
                    return self._draw_all(scan, pieces)
            except torch.OutOfMemoryError:
                pieces = self._shrink(pieces)

    def _shrink(self, pieces: Pieces) -> Pieces:
        """Smaller pieces; where there are none, the CPU."""
        torch.cuda.empty_cache()
        if (smaller := pieces.smaller) is not None:
            _warn(f"Out of GPU memory with {pieces}: going on with {smaller}. The result is the same.")
            return smaller
        if self.device.type == "cpu":
            raise ConfigError("Out of memory with the smallest pieces. Close other programs, or give --grid native.")
        _warn("Out of GPU memory with the smallest pieces: going on with the CPU, which is slower.")
        self.device = torch.device("cpu")
        self.rival = self.rival.to(self.device)
        return pieces

    def _draw_all(self, scan: WorkingScan, pieces: Pieces) -> Float[Tensor, "k v 6"]:
        firsts = range(0, self.num_samples, pieces.samples)
        return torch.cat([self._draw(scan, self._sampling(scan.key, first, pieces)) for first in firsts])

    def _draw(self, scan: WorkingScan, sampling: Sampling) -> Float[Tensor, "k v 6"]:
        def here(values: Tensor) -> Tensor:
            return values.float().to(self.device)[None]

        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            components = self.rival.reconstruct(
                here(scan.dwi / scan.b0_scale),
                here(scan.bvals),
                directions=here(scan.directions),
                mask=scan.mask.to(self.device)[None],
                voxel_size=here(torch.tensor(scan.voxel_size)),
                sampling=sampling,
            )
        return rearrange(components.float().cpu()[:, :, scan.mask], "k d v -> k v d").double()

    def _sampling(self, key: str, first: int, pieces: Pieces) -> Sampling:
        def noise(number: int, shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, generator=generator(self.settings.seed, "noise", key, number))

        return Sampling(
            noise,
            num_samples=min(pieces.samples, self.num_samples - first),
            num_steps=self.settings.steps,
            sampler=self.settings.sampler,
            first=first,
            slices_at_once=pieces.slices,
        )


def rival_traits(name: str) -> Traits:
    """What the pipeline has to know of a rival, from its name alone."""
    return Traits(name, voxelwise=False, fixed_input=False, samples=RIVALS[name].stochastic, four_volumes=True)


def load_rival_engine(folder: Path, *, device: torch.device, settings: Settings) -> RivalEngine:
    """A rival's bundle, ready on the device."""
    rival, info = load_rival(folder, device)
    return RivalEngine(rival_traits(info.method), rival, info, device, settings)


def _warn(text: str) -> None:
    warnings.warn(text, DataWarning, stacklevel=3)
