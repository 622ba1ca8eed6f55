"""A trained model through the pipeline's door: the scan is read once, samples are drawn from keyed noise.

Noise depends on (seed, scan, sample) alone, so neither the order of scans nor how many samples fit into memory at
once changes what is drawn.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.build import build_scaling
from tensorldm.bundle import BundleInfo, load_bundle
from tensorldm.data.selection import PAPER_SHELL
from tensorldm.diffusion import Denoise, Spacing
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.errors import ConfigError, DataWarning
from tensorldm.model import ScanReading, TensorLDM
from tensorldm.networks.recording import RecordedStep
from tensorldm.reconstruct.engine import Traits, WorkingScan
from tensorldm.reconstruct.settings import DEFAULT_SAMPLES, Settings
from tensorldm.reconstruct.uncertainty import LEVEL, Calibration
from tensorldm.rng import generator
from tensorldm.work.memory import freed_memory_kept

FIRST_DENOISING_STAGE = 4
"""Before it a model with an expectation has nothing to draw with, and gives the expectation."""
LEAST_RATIO, LARGEST_RATIO = 1e-3, 1.0
"""Of S/S0, before it is taken to another b-value: noise outside these would be blown up by the power."""
SPACINGS: Mapping[str, Spacing] = {"ddim": "trailing", "dpm++2m": "log-snr"}
"""The paper's strides for the paper's sampler; the second-order solver is exact in log-SNR [choice: spacing]."""
RECORDING_REPAYS = 8
"""[choice: recording] Steps of one shape from which a recording is made: twice the four that it costs."""


@dataclass(eq=False)
class ModelEngine:
    """A bundle on a device; where the device's memory is too small it works in smaller pieces, and says so."""

    traits: Traits
    model: TensorLDM
    info: BundleInfo
    device: torch.device
    settings: Settings
    centres: bool = True
    """Whether samples are moved together onto the expectation, where the model has one; not to study them as drawn."""

    @property
    def num_samples(self) -> int:
        """How many are drawn; a model that only expects gives one tensor."""
        return (self.settings.samples or DEFAULT_SAMPLES) if self.traits.samples else 1

    @property
    def notes(self) -> Mapping[str, Any]:
        """Which model, and how it was sampled, if it was."""
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
                "Spacing": SPACINGS[self.settings.sampler],
                "SamplesCentred": self._is_centred,
                "Intervals": {"Level": LEVEL, **self.info.intervals.model_dump()},
            }
        return known

    @property
    def calibration(self) -> Calibration:
        """As the bundle holds it."""
        return Calibration(**self.info.intervals.model_dump())

    @property
    def _is_centred(self) -> bool:
        return self.centres and self.model.expectation is not None and self.num_samples > 1

    def estimate(self, scan: WorkingScan) -> Float[Tensor, "k v 6"]:
        """Samples of the tensor inside the mask."""
        scan = with_one_b0(at_paper_bvalue(scan) if self.traits.fixed_input else scan)
        at_once = samples_at_once(self.device, self.num_samples)
        while True:
            try:
                with freed_memory_kept(self.device.type):
                    return self._draw_all(scan, at_once) if self.traits.samples else self._expect(scan)
            except torch.OutOfMemoryError:
                at_once = self._shrink(at_once)

    def _shrink(self, at_once: int) -> int:
        """Fewer samples at a time; a single one that does not fit goes to the CPU."""
        torch.cuda.empty_cache()
        if at_once > 1:
            smaller = (at_once + 1) // 2
            _warn(f"Out of GPU memory with {at_once} samples at once: going on with {smaller}. The result is the same.")
            return smaller
        if self.device.type == "cpu":
            raise ConfigError("Out of memory with the smallest pieces. Close other programs, or give a smaller mask.")
        _warn("Out of GPU memory with the smallest pieces: going on with the CPU, which is slower.")
        self.device = torch.device("cpu")
        self.model = self.model.to(self.device)
        return 1

    def _draw_all(self, scan: WorkingScan, at_once: int) -> Float[Tensor, "k v 6"]:
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            reading = self._read(scan)
            recorded = self._record(reading, scan, at_once)
            groups = [
                range(first, min(first + at_once, self.num_samples)) for first in range(0, self.num_samples, at_once)
            ]
            parts = [
                self._draw(reading, scan, numbers, denoise=recorded if len(numbers) == at_once else None)
                for numbers in groups
            ]
        samples, expected = torch.cat(parts), reading.features.expected
        if expected is None or not self._is_centred:
            return samples
        x, y, z = scan.mask.shape
        return centred(samples, self._unscaled(expected[..., :x, :y, :z], scan))

    @torch.inference_mode()
    def _record(self, reading: ScanReading, scan: WorkingScan, at_once: int) -> Denoise | None:
        """The step for ``at_once`` samples in a recorded form; None where that is not worth it or does not work."""
        if not worth_recording(self.device, self.settings, calls=self.num_samples // at_once):
            return None
        x, y, z = scan.mask.shape
        like = torch.zeros(self.model.latent_shape(at_once, (x, y, z)), device=self.device)
        try:
            return RecordedStep(partial(self.model.denoise, condition=reading.condition), like)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            _warn(f"The GPU cannot record a step ({_first_line(error)}): going on without, more slowly.")
            self.settings = replace(self.settings, compile="never")
            return None

    def _read(self, scan: WorkingScan) -> ScanReading:
        return self.model.read(**self._inputs(scan))

    def _inputs(self, scan: WorkingScan) -> dict[str, Tensor]:
        """A batch of one: volumes on the device; what describes them on the CPU, where rules are made of it."""
        return {
            "dwi": (scan.dwi / scan.b0_scale).float().to(self.device)[None],
            "bvals": scan.bvals.float()[None],
            "directions": scan.directions.float()[None],
            "mask": scan.mask.to(self.device)[None],
            "voxel_size": torch.tensor([scan.voxel_size], dtype=torch.float32),
        }

    @torch.inference_mode()
    def _expect(self, scan: WorkingScan) -> Float[Tensor, "1 v 6"]:
        """The expected tensor alone, of a model whose diffusion is not trained yet."""
        expected = self.model.expect(**self._inputs(scan))
        return self._unscaled(expected, scan)

    def _draw(
        self, reading: ScanReading, scan: WorkingScan, numbers: range, *, denoise: Denoise | None
    ) -> Float[Tensor, "k v 6"]:
        x, y, z = scan.mask.shape
        shape = self.model.latent_shape(1, (x, y, z))
        noise = torch.cat(
            [torch.randn(shape, generator=generator(self.settings.seed, "noise", scan.key, k)) for k in numbers]
        )
        drawn = self.model.draw(
            reading,
            noise.to(self.device),
            num_steps=self.settings.steps,
            sampler=self.settings.sampler,
            spacing=SPACINGS[self.settings.sampler],
            denoise=denoise,
        )
        return self._unscaled(drawn, scan)

    def _unscaled(self, components: Float[Tensor, "k 6 x y z"], scan: WorkingScan) -> Float[Tensor, "k v 6"]:
        """mm²/s inside the mask, on the CPU."""
        unscaled = build_scaling(self.info.model).unscale(components.float())
        # Chosen and turned on the device, which else would wait while one core does it.
        inside = rearrange(unscaled[:, :, scan.mask.to(unscaled.device)], "k d v -> k v d").contiguous()
        return inside.cpu().double()


def centred(samples: Float[Tensor, "k v 6"], expected: Float[Tensor, "1 v 6"]) -> Float[Tensor, "k v 6"]:
    """Samples moved together so that their mean is the tensor they are drawn around [choice: centred-samples].

    The mean of K samples is noisier than the regression that they are drawn around, by a K-th of their variance.
    """
    return samples + (expected - samples.mean(dim=0, keepdim=True))


def samples_at_once(device: torch.device, wanted: int) -> int:
    """A GPU gains from many at once; a CPU only loses memory by it."""
    return 1 if device.type == "cpu" else wanted


def worth_recording(device: torch.device, settings: Settings, *, calls: int) -> bool:
    """Whether steps of one shape, ``calls`` times those of a sampler, repay their recording; only a GPU records."""
    return device.type == "cuda" and settings.compile == "auto" and calls * settings.steps >= RECORDING_REPAYS


def with_one_b0(scan: WorkingScan) -> WorkingScan:
    """The scan with its b=0 volumes averaged into one, which is what models are trained on."""
    weighted = scan.bvals > B0_MAX_S_PER_MM2
    if int((~weighted).sum()) < 2:
        return scan
    mean = scan.dwi[~weighted].mean(dim=0, keepdim=True)
    return replace(
        scan,
        dwi=torch.cat([mean, scan.dwi[weighted]]),
        bvals=torch.cat([scan.bvals.new_zeros(1), scan.bvals[weighted]]),
        directions=torch.cat([scan.directions.new_zeros(1, 3), scan.directions[weighted]]),
    )


def at_paper_bvalue(scan: WorkingScan) -> WorkingScan:
    """The scan as b = 1000 s/mm² would show it if decay were mono-exponential: S0·(S/S0)^(1000/b)."""
    b0 = scan.dwi[:1].clamp(min=torch.finfo(scan.dwi.dtype).tiny)
    weighted = scan.bvals > B0_MAX_S_PER_MM2
    power = torch.where(weighted, PAPER_SHELL / scan.bvals.clamp(min=B0_MAX_S_PER_MM2), 1.0).to(scan.dwi)
    ratio = (scan.dwi / b0).clamp(LEAST_RATIO, LARGEST_RATIO) ** power[:, None, None, None]
    return replace(
        scan,
        dwi=torch.where(weighted[:, None, None, None], b0 * ratio, scan.dwi),
        bvals=torch.where(weighted, PAPER_SHELL, scan.bvals),
    )


def model_traits(info: BundleInfo) -> Traits:
    """What the pipeline has to know of a model, from its index alone."""
    return Traits(
        info.card.title.lower(),
        voxelwise=False,
        fixed_input=info.model.autoencoder.conditioner == "paper",
        samples=info.model.expectation is None or FIRST_DENOISING_STAGE in info.card.stages,
    )


def load_model(folder: Path, *, device: torch.device, settings: Settings) -> ModelEngine:
    """The bundle's model, ready on the device."""
    model, info = load_bundle(folder, device)
    return ModelEngine(model_traits(info), model.ready(), info, device, settings)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def _warn(text: str) -> None:
    warnings.warn(text, DataWarning, stacklevel=3)
