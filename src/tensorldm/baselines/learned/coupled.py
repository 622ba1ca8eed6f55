"""Channel-Shared: TensorLDM's autoencoder, and one denoiser of all its latents stacked as channels [choice: coupled].

The paper's appendix sets its component-wise diffusion against such a coupled field: latents of the six components and
features of the four volumes in one stack, joined by convolutions alone; no attention between components, no experts.
Axes: b batch, c DWI volume, d component (6), f channel, x y z space (of latents).
"""

from collections.abc import Iterable
from re import search

import torch
from einops import rearrange
from jaxtyping import Float, Int
from monai.networks.nets.diffusion_model_unet import DiffusionModelUNet
from torch import Tensor

from tensorldm.baselines.learned.config import CoupledModel
from tensorldm.baselines.learned.denoising import denoising_error, draw_latents, draw_noise, noised
from tensorldm.baselines.learned.objective import Positions, RivalObjective
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.baselines.learned.told import NUM_VOLUMES, Told
from tensorldm.batch import Batch
from tensorldm.build import build_model
from tensorldm.components import NUM_COMPONENTS
from tensorldm.config.training import StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.networks.quantizer import VectorQuantizer
from tensorldm.shapes import Components, Dwi, Latents, Masks
from tensorldm.training.objectives import ReconstructionObjective
from tensorldm.training.recording import Evaluated, Gathered
from tensorldm.training.stages import NOT_JOINT

DENOISING = 3
"""The last stage; before it the autoencoder learns from patches, then from whole volumes."""
Field = Float[Tensor, "b _ x y z"]


class Coupled(Rival):
    """The model's own denoiser and experts are there as it comes, never used, and left out of bundles."""

    stochastic = True
    training_only = ("model.unet.", "model.experts.")

    def __init__(self, config: CoupledModel, scaling: TensorScaling) -> None:
        super().__init__(scaling)
        self.model = build_model(config.tensorldm)
        latents = NUM_COMPONENTS * config.tensorldm.autoencoder.latent_channels
        self.denoiser = DiffusionModelUNet(
            spatial_dims=3,
            in_channels=latents + NUM_VOLUMES * self.model.autoencoder.conditioner.pooled_channels,
            out_channels=latents,
            num_res_blocks=config.blocks,
            channels=config.channels,
            attention_levels=[level in config.attention_levels for level in range(len(config.channels))],
            norm_num_groups=config.norm_groups,
            num_head_channels=config.head_channels,
        )
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name.startswith("autoencoder.") and search(NOT_JOINT, name) is None)

    @property
    def multiples(self) -> tuple[int, int, int]:
        """As of the model whose latents are denoised."""
        return (self.model.side_multiple,) * 3

    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:  # noqa: ARG002  no options
        """The autoencoder as in TensorLDM's Stages 1 and 2, then the denoiser of its latents."""
        for module in self.model.modules():
            if isinstance(module, VectorQuantizer):
                module.frozen = stage == DENOISING
        if stage == DENOISING:
            return [Goal("denoiser", CoupledDenoising(self, seed=seed, stage=stage), ("denoiser.",))]
        objective = ReconstructionObjective(self.model, scaling=self.scaling)
        return [Goal("autoencoder", objective, ("model.autoencoder.",))]

    @torch.no_grad()
    def begin(self, stage: int, batches: Iterable[Batch], *, seed: int) -> None:  # noqa: ARG002  nothing is drawn
        """The scale of the latents, before they are diffused."""
        if stage != DENOISING:
            return
        latents, inside = [], []
        for batch in batches:
            features = self.model.scan_features(**batch.scan)
            latents.append(self.model.autoencoder.encode(self.scaling.scale(batch.components), features))
            inside.append(self.model.latent_mask(batch.mask))
        self.model.set_latent_scale(torch.cat(latents), torch.cat(inside))

    @torch.no_grad()
    def recoded(self, batch: Batch, *, stage: int) -> Components | None:
        """Before the denoiser is trained, what the autoencoder makes of the reference."""
        if stage == DENOISING:
            return None
        features = self.model.scan_features(**batch.scan)
        latents = self.model.encode(self.scaling.scale(batch.components), features)
        x, y, z = batch.mask.shape[1:]
        decoded = self.model.decode(latents, features, size=(x, y, z))
        return self.scaling.unscale(decoded.float()) * batch.mask[:, None]

    def denoise(self, noisy: Latents, steps: Int[Tensor, " _"], *, pooled: Float[Tensor, "b c _ x y z"]) -> Latents:
        """The prediction for latents at their diffusion steps, all components in one stack with the scan's features."""
        scan: Field = rearrange(pooled, "b c f x y z -> b (c f) x y z")
        stack: Field = rearrange(noisy, "b d f x y z -> b (d f) x y z")
        found: Tensor = self.denoiser(torch.cat([stack, scan.to(stack)], dim=1), steps)
        return rearrange(found, "b (d f) x y z -> b d f x y z", d=NUM_COMPONENTS)

    def estimate(self, told: Told, sampling: Sampling) -> Float[Tensor, "k 6 x y z"]:  # noqa: ARG002  never asked
        """Nothing: its conditioner reads the scan itself, in ``read_and_estimate``."""
        raise AssertionError("channels are for rivals that are told the scan by them")

    def read_and_estimate(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        sampling: Sampling,
    ) -> Float[Tensor, "k 6 x y z"]:
        """Latents from noise, one sample after another, decoded with the scan's anatomy."""
        features = self.model.scan_features(dwi, bvals, directions=directions, mask=mask, voxel_size=voxel_size)

        def predict(stack: Float[Tensor, "k 6 f x y z"], step: int) -> Float[Tensor, "k 6 f x y z"]:
            steps = torch.full((1,), step, device=stack.device)
            return torch.cat([self.denoise(latents[None], steps, pooled=features.pooled) for latents in stack])

        x, y, z = mask.shape[1:]
        noise = draw_noise(sampling, self.model.latent_shape(1, (x, y, z))[1:], device=dwi.device)
        drawn = draw_latents(
            predict, noise, sampling=sampling, schedule=self.model.schedule, prediction=self.model.prediction
        )
        decoded = [self.model.decode(each[None], features, size=(x, y, z)) for each in drawn]
        return self.scaling.unscale(torch.cat(decoded).float())


class CoupledDenoising(RivalObjective):
    """The error of the prediction at one diffusion step drawn for each subject."""

    draws = True

    def __init__(self, rival: Coupled, *, seed: int, stage: int) -> None:
        super().__init__(rival.scaling, seed=seed, stage=stage)
        self.rival = rival

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """Noisy latents, their diffusion steps, what to predict, and what the conditioner reads of the scan."""
        model = self.rival.model
        with torch.no_grad():
            features = model.scan_features(**batch.scan)
            clean = model.encode(self.scaling.scale(batch.components), features).float()
        random, prediction = self.generators(positions, clean.device), model.prediction
        noisy, steps, target = noised(clean, generators=random, schedule=model.schedule, prediction=prediction)
        return noisy, steps, target, features.pooled

    def evaluate(
        self, noisy: Latents, steps: Int[Tensor, " b"], target: Latents, pooled: Float[Tensor, "b c _ x y z"]
    ) -> Evaluated:
        """Loss over all latents."""
        return Evaluated(denoising_error(self.rival.denoise(noisy, steps, pooled=pooled), target), {})
