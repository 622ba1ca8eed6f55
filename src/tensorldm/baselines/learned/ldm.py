"""A plain latent diffusion model: MONAI's VQ-VAE and U-Net, the scan's latent beside the noisy one [choice: rival-ldm].

R. Rombach and others: High-resolution image synthesis with latent diffusion models, CVPR 2022. One autoencoder for the
six components together and one for the scan; neither decoder sees the other's anatomy.
Axes: b batch, f channel, x y z space (of voxels or latents).
"""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from monai.networks.nets.diffusion_model_unet import DiffusionModelUNet
from monai.networks.nets.vqvae import VQVAE
from torch import Tensor

from tensorldm.baselines.learned.codebook import LatentList, revive_codes, start_codes
from tensorldm.baselines.learned.config import LDMModel
from tensorldm.baselines.learned.denoising import denoising_error, draw_latents, draw_noise, noised
from tensorldm.baselines.learned.objective import Positions, RivalObjective, mean_inside
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.baselines.learned.told import NUM_CHANNELS, NUM_IMAGES, NUM_SETTINGS, Told, tell_batch
from tensorldm.baselines.learned.vqvae import SixCodesVQVAE, sixths
from tensorldm.batch import Batch
from tensorldm.components import NUM_COMPONENTS
from tensorldm.config.training import StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.diffusion import linear_schedule
from tensorldm.rng import generator
from tensorldm.shapes import Components, Latents, Masks
from tensorldm.training.recording import Evaluated, Gathered

SMALLEST_SPREAD = 1e-6
Volume = Float[Tensor, "b _ x y z"]
LatentVolume = Float[Tensor, "_ _ x y z"]
"""Latents of samples, or the condition beside them, of which there may be one for all."""


class LDM(Rival):
    """Two autoencoders and a denoiser of the tensors' latents."""

    stochastic = True

    def __init__(self, config: LDMModel, scaling: TensorScaling) -> None:
        super().__init__(scaling)
        self.tensors = SixCodesVQVAE(config, NUM_COMPONENTS, NUM_COMPONENTS)
        self.scans = SixCodesVQVAE(config, NUM_CHANNELS, NUM_IMAGES)
        self.unet = DiffusionModelUNet(
            spatial_dims=3,
            in_channels=2 * config.latent_channels + NUM_SETTINGS,
            out_channels=config.latent_channels,
            num_res_blocks=config.blocks,
            channels=config.channels,
            attention_levels=[level in config.attention_levels for level in range(len(config.channels))],
            norm_num_groups=config.norm_groups,
            num_head_channels=config.head_channels,
        )
        sizes = config.diffusion
        self.schedule = linear_schedule(sizes.num_steps, sizes.first_beta, last_beta=sizes.last_beta)
        self.prediction = sizes.prediction
        self.latent_channels = config.latent_channels
        self.compression = 2 ** len(config.encoder_channels)
        self._side = self.compression * 2 ** (len(config.channels) - 1)
        for kind in ("latent", "scan"):
            for name, start in (("mean", torch.zeros), ("spread", torch.ones)):
                self.register_buffer(f"{kind}_{name}", start(1, config.latent_channels, 1, 1, 1))
        self.latent_mean: Tensor
        self.latent_spread: Tensor
        self.scan_mean: Tensor
        self.scan_spread: Tensor

    @property
    def multiples(self) -> tuple[int, int, int]:
        """Both the autoencoders and the U-Net halve every side."""
        return self._side, self._side, self._side

    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:  # noqa: ARG002  no options
        """Autoencoders, then the denoiser of their latents."""
        if stage == 1:
            return [Goal("autoencoders", AutoencoderObjective(self, seed=seed), ("tensors.", "scans."))]
        return [Goal("denoiser", LatentDenoising(self, seed=seed, stage=stage), ("unet.",))]

    @torch.no_grad()
    def begin(self, stage: int, batches: Iterable[Batch], *, seed: int) -> None:
        """First codes from latents of training subjects; then, for diffusion, the mean and spread of both kinds."""
        tensors, scans = [], []
        for batch in batches:
            told = tell_batch(batch, self.scaling.per_component)
            tensors.append(self.inside(self.tensors.encode(self._target(batch)), batch.mask))
            scans.append(self.inside(self.scans.encode(told.channels), batch.mask))
        if stage == 1:
            random = generator(seed, "first codes")
            start_codes(self.tensors.quantizer.quantizer, sixths(torch.cat(tensors)), random)
            start_codes(self.scans.quantizer.quantizer, sixths(torch.cat(scans)), random)
            return
        _measure(torch.cat(tensors), self.latent_mean, spread=self.latent_spread)
        _measure(torch.cat(scans), self.scan_mean, spread=self.scan_spread)

    def inside(self, latents: Float[Tensor, "b f _ _ _"], mask: Masks) -> LatentList:
        """Latents that any voxel of the mask falls into, as a list."""
        return rearrange(latents, "b f x y z -> b x y z f")[self.latent_mask(mask)]

    def _target(self, batch: Batch) -> Components:
        return self.scaling.scale(batch.components) * batch.mask[:, None]

    @torch.no_grad()
    def recoded(self, batch: Batch, *, stage: int) -> Components | None:
        """After the first stage, what the autoencoder makes of the reference."""
        if stage != 1:
            return None
        latents = self.tensors.encode(self._target(batch)).float()
        decoded: Tensor = self.tensors.decode(self.tensors.quantize(latents)[0])
        return self.scaling.unscale(decoded.float()) * batch.mask[:, None]

    def latent_mask(self, mask: Masks) -> Bool[Tensor, "b _ _ _"]:
        """Latents that any voxel of the mask falls into."""
        return F.max_pool3d(mask[:, None].float(), self.compression)[:, 0] > 0

    @torch.no_grad()
    def condition(self, told: Told) -> LatentVolume:
        """What is laid beside the noisy latents: the scan's latent, and where and how it was measured."""
        latents = (self.scans.encode(told.channels) - self.scan_mean) / self.scan_spread
        return torch.cat([latents, F.avg_pool3d(told.settings, self.compression).to(latents)], dim=1)

    def denoise(self, noisy: LatentVolume, steps: Int[Tensor, " b"], *, condition: LatentVolume) -> LatentVolume:
        """The prediction for latents at their diffusion steps."""
        found: Tensor = self.unet(torch.cat([noisy, condition.to(noisy)], dim=1), steps)
        return found

    def estimate(self, told: Told, sampling: Sampling) -> Float[Tensor, "k 6 x y z"]:
        """Latents from noise, quantised and decoded, one sample after another."""
        condition = self.condition(told)

        def predict(stack: Float[Tensor, "k 6 f x y z"], step: int) -> Float[Tensor, "k 6 f x y z"]:
            steps = torch.full((1,), step, device=stack.device)
            found = [self.denoise(_joined(latents[None]), steps, condition=condition) for latents in stack]
            return _grouped(torch.cat(found))

        x, y, z = condition.shape[2:]
        shape = (NUM_COMPONENTS, self.latent_channels // NUM_COMPONENTS, x, y, z)
        noise = draw_noise(sampling, shape, device=told.channels.device)
        drawn = draw_latents(predict, noise, sampling=sampling, schedule=self.schedule, prediction=self.prediction)
        latents = _joined(drawn) * self.latent_spread + self.latent_mean
        decoded = [self.tensors.decode(self.tensors.quantize(each[None])[0]) for each in latents]
        return self.scaling.unscale(torch.cat(decoded).float())


class AutoencoderObjective(RivalObjective):
    """Both autoencoders: |error| and the commitment to the codes."""

    def __init__(self, rival: LDM, *, seed: int) -> None:
        super().__init__(rival.scaling, seed=seed)
        self.rival = rival

    def gather(self, batch: Batch, positions: Positions) -> Gathered:  # noqa: ARG002  drawn is at the end
        """What is coded: the channels of the scan, and the tensor."""
        told, target = self.read(batch)
        return told.channels, told.mask, target

    def evaluate(self, channels: Volume, mask: Masks, target: Components) -> Evaluated:
        """Loss of encoding and decoding tensors and scans; the latents are kept."""
        told = Told(channels, mask)
        on_tensors, tensor_commitment, tensors = self._code(self.rival.tensors, target, target, mask=mask)
        on_scans, scan_commitment, scans = self._code(self.rival.scans, channels, told.images, mask=mask)
        loss = on_tensors + on_scans + tensor_commitment + scan_commitment
        perplexity = self.rival.tensors.quantizer.perplexity.detach()
        logs = {"tensors": on_tensors.detach(), "scans": on_scans.detach(), "perplexity": perplexity}
        return Evaluated(loss, logs, (mask, tensors, scans))

    def finish(self, positions: Positions, *kept: Tensor) -> None:
        """Dead codes are revived."""
        mask, *latents = kept
        random = self.generators(positions, torch.device("cpu"))[0]
        for coder, found in zip((self.rival.tensors, self.rival.scans), latents, strict=True):
            known = self.rival.inside(found, mask)
            if len(known):
                revive_codes(coder.quantizer.quantizer, sixths(known), random)

    def _code(self, coder: VQVAE, volume: Tensor, target: Tensor, *, mask: Masks) -> tuple[Tensor, Tensor, Tensor]:
        """Error, commitment, and the latents without their gradients."""
        latents = coder.encode(volume).float()
        with torch.autocast(latents.device.type, enabled=False):  # sums of thousands of latents, in full precision
            quantized, commitment = coder.quantize(latents)
        error = mean_inside((coder.decode(quantized).float() - target).abs(), mask)
        return error, commitment, latents.detach()


class LatentDenoising(RivalObjective):
    """The error of the prediction at one diffusion step drawn for each subject."""

    draws = True

    def __init__(self, rival: LDM, *, seed: int, stage: int) -> None:
        super().__init__(rival.scaling, seed=seed, stage=stage)
        self.rival = rival

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """Noisy latents, their diffusion steps, what to predict, and the scan's latent beside them."""
        told, target = self.read(batch)
        with torch.no_grad():
            latents = self.rival.tensors.encode(target).float()
            clean = _grouped((latents - self.rival.latent_mean) / self.rival.latent_spread)
        noisy, steps, wanted = noised(
            clean,
            generators=self.generators(positions, clean.device),
            schedule=self.rival.schedule,
            prediction=self.rival.prediction,
        )
        return noisy, steps, wanted, self.rival.condition(told)

    def evaluate(self, noisy: Latents, steps: Int[Tensor, " b"], target: Latents, condition: LatentVolume) -> Evaluated:
        """Loss over all latents."""
        found = _grouped(self.rival.denoise(_joined(noisy), steps, condition=condition))
        return Evaluated(denoising_error(found, target), {})


def _measure(latents: LatentList, mean: Tensor, *, spread: Tensor) -> None:
    mean.copy_(latents.mean(dim=0).reshape(mean.shape))
    spread.copy_(latents.std(dim=0).clamp_min(SMALLEST_SPREAD).reshape(spread.shape))


def _grouped(latents: LatentVolume) -> Float[Tensor, "b 6 _ x y z"]:
    return rearrange(latents, "b (six f) x y z -> b six f x y z", six=NUM_COMPONENTS)


def _joined(latents: Float[Tensor, "b 6 f x y z"]) -> LatentVolume:
    return rearrange(latents, "b six f x y z -> b (six f) x y z")
