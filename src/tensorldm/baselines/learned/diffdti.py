"""Diff-DTI: 2D diffusion of maps given a scan, a transformer path beside its U-Net [choice: rival-diffdti].

L. Zhang and others: Diff-DTI, fast diffusion tensor imaging using a feature-enhanced joint diffusion model, 2024. The
tensor comes from the maps by E13. The feature-enhancement-fusion path reads the scan's slice alone: its transformer
sees the whole slice, its convolutions the detail, and both are fused and added to the U-Net's skips at every level.
Axes: b batch, n slice, f channel, x y z space.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from monai.networks.nets.diffusion_model_unet import DiffusionModelUNet
from torch import Tensor, nn

from tensorldm.baselines.learned.config import DiffDTIModel
from tensorldm.baselines.learned.denoising import denoising_error, draw_latents, draw_noise, noised
from tensorldm.baselines.learned.maps import maps_of, num_maps, tensor_of
from tensorldm.baselines.learned.objective import Positions, RivalObjective
from tensorldm.baselines.learned.rival import Goal, Rival, Sampling
from tensorldm.baselines.learned.slices import Slices, among_all, draw_slices, slices_with_brain, take_slices
from tensorldm.baselines.learned.tokens import GridTransformer
from tensorldm.baselines.learned.tokens import Positions as PositionCodes
from tensorldm.baselines.learned.told import NUM_CHANNELS, Told
from tensorldm.batch import Batch
from tensorldm.components import NUM_COMPONENTS
from tensorldm.config.training import StageConfig
from tensorldm.data.scaling import TensorScaling
from tensorldm.diffusion import linear_schedule
from tensorldm.shapes import Latents
from tensorldm.training.recording import Evaluated, Gathered


class EnhancementPath(nn.Module):
    """The feature-enhancement-fusion path: features of the scan for each skip of the U-Net."""

    def __init__(self, config: DiffDTIModel) -> None:
        super().__init__()
        channels, groups = config.channels, config.norm_groups
        self.transformer = GridTransformer(
            config.token_channels, layers=config.layers, head_channels=config.head_channels
        )
        self.embed = nn.Conv2d(NUM_CHANNELS, config.token_channels, config.token_side, stride=config.token_side)
        self.positions = PositionCodes(config.token_channels, axes=2)
        self.stem = nn.Conv2d(NUM_CHANNELS, channels[0], 3, padding=1)
        self.downs = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(channels))
        self.fuses = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width + config.token_channels, width, 3, padding=1), nn.GroupNorm(groups, width), nn.SiLU()
            )
            for width in channels
        )
        # As many as the U-Net has skips: after its first convolution, each residual block and each halving. What
        # follows a halving still has the width of before.
        skips = [(0, channels[0])]
        for level, width in enumerate(channels):
            skips += [(level, width)] * config.blocks
            skips += [(level + 1, width)] if level + 1 < len(channels) else []
        self.levels = [level for level, _ in skips]
        self.heads = nn.ModuleList(_silent(nn.Conv2d(channels[level], width, 1)) for level, width in skips)

    def forward(self, scan: Slices) -> tuple[Tensor, ...]:
        """One map of features for each skip, from fine to coarse."""
        context = self.transformer(self.positions(self.embed(scan)))
        features = self.stem(scan)
        fused = []
        for level, fuse in enumerate(self.fuses):
            if level:
                features = self.downs[level - 1](F.silu(features))
            spread = F.interpolate(context, size=features.shape[2:], mode="bilinear", align_corners=False)
            features = fuse(torch.cat([features, spread], dim=1))
            fused.append(features)
        return tuple(head(fused[level]) for level, head in zip(self.levels, self.heads, strict=True))


class DiffDTI(Rival):
    """A denoiser of maps that is told the scan twice: as channels, and through the enhancement path."""

    stochastic = True

    def __init__(self, config: DiffDTIModel, scaling: TensorScaling) -> None:
        super().__init__(scaling)
        self.enhancement = EnhancementPath(config)
        maps = num_maps(config.signs)
        self.unet = DiffusionModelUNet(
            spatial_dims=2,
            in_channels=maps + NUM_CHANNELS,
            out_channels=maps,
            num_res_blocks=config.blocks,
            channels=config.channels,
            attention_levels=[level in config.attention_levels for level in range(len(config.channels))],
            norm_num_groups=config.norm_groups,
            num_head_channels=config.head_channels,
        )
        self.num_slices, self.num_maps, self.signs = config.slices, maps, config.signs
        sizes = config.diffusion
        self.schedule = linear_schedule(sizes.num_steps, sizes.first_beta, last_beta=sizes.last_beta)
        self.prediction = sizes.prediction
        self._side = max(2 ** (len(config.channels) - 1), config.token_side)

    @property
    def multiples(self) -> tuple[int, int, int]:
        """Slices are halved and cut into tokens, their number is not."""
        return self._side, self._side, 1

    def goals(self, stage: int, *, settings: StageConfig, seed: int) -> list[Goal]:  # noqa: ARG002  one stage, no options
        """Denoise the maps."""
        return [Goal("model", MapDenoising(self, seed=seed), ("unet.", "enhancement."))]

    def denoise(
        self, noisy: Slices, steps: Int[Tensor, " n"], *, scan: Slices, features: Sequence[Tensor] | None = None
    ) -> Slices:
        """The prediction for slices at their diffusion steps; ``features`` are those of the scan, where known."""
        features = self.enhancement(scan) if features is None else features
        found: Tensor = self.unet(
            torch.cat([noisy, scan], dim=1), steps, down_block_additional_residuals=tuple(features)
        )
        return found

    def estimate(self, told: Told, sampling: Sampling) -> Float[Tensor, "k 6 x y z"]:
        """Maps from noise, all slices of a head side by side, then E13."""
        held, height = slices_with_brain(told.mask), told.mask.shape[-1]
        in_parts = partial(torch.split, split_size_or_sections=sampling.slices_at_once)
        scans = in_parts(rearrange(told.channels[..., held], "1 f x y z -> z f x y"))
        known = [self.enhancement(scan) for scan in scans]

        def predict(stack: Float[Tensor, "k 6 m x y z"], step: int) -> Float[Tensor, "k 6 m x y z"]:
            found = []
            for sample in rearrange(_joined(stack), "k f x y z -> k z f x y"):
                parts = [
                    self.denoise(part, torch.full((len(part),), step, device=part.device), scan=scan, features=features)
                    for part, scan, features in zip(in_parts(sample), scans, known, strict=True)
                ]
                found.append(torch.cat(parts))
            return _grouped(rearrange(torch.stack(found), "k z f x y -> k f x y z"))

        shape = (NUM_COMPONENTS, self.num_maps // NUM_COMPONENTS, *told.mask.shape[1:])
        noise = draw_noise(sampling, shape, device=told.channels.device)[..., held]
        drawn = draw_latents(predict, noise, sampling=sampling, schedule=self.schedule, prediction=self.prediction)
        return among_all(tensor_of(_joined(drawn)), held, height=height)


class MapDenoising(RivalObjective):
    """The error of the prediction at one diffusion step drawn for each head's slices."""

    draws = True

    def __init__(self, rival: DiffDTI, *, seed: int) -> None:
        super().__init__(rival.scaling, seed=seed)
        self.rival = rival

    def gather(self, batch: Batch, positions: Positions) -> Gathered:
        """Slices drawn from each head: noisy maps, their diffusion steps, what to predict, and the scan."""
        told, _ = self.read(batch)
        random = self.generators(positions, batch.mask.device)
        places = draw_slices(batch.mask, self.rival.num_slices, random)
        maps = take_slices(maps_of(batch.components, batch.mask, signs=self.rival.signs), places)
        noisy, steps, target = noised(
            _grouped(rearrange(maps, "n f x y -> n f x y 1")),
            generators=[each for each in random for _ in range(self.rival.num_slices)],
            schedule=self.rival.schedule,
            prediction=self.rival.prediction,
        )
        return noisy, steps, target, take_slices(told.channels, places)

    def evaluate(self, noisy: Latents, steps: Int[Tensor, " n"], target: Latents, scan: Slices) -> Evaluated:
        """Loss of these slices."""
        found = self.rival.denoise(rearrange(_joined(noisy), "n f x y 1 -> n f x y"), steps, scan=scan)
        return Evaluated(denoising_error(_grouped(rearrange(found, "n f x y -> n f x y 1")), target), {})


def _grouped(maps: Float[Tensor, "n f x y z"]) -> Float[Tensor, "n 6 _ x y z"]:
    """Six maps in each group, as the samplers have latents; the published ones come first."""
    return rearrange(maps, "n (m six) x y z -> n six m x y z", six=NUM_COMPONENTS)


def _joined(groups: Float[Tensor, "n 6 m x y z"]) -> Float[Tensor, "n _ x y z"]:
    return rearrange(groups, "n six m x y z -> n (m six) x y z")


def _silent(convolution: nn.Conv2d) -> nn.Conv2d:
    """Starts as nothing: the denoiser learns first."""
    nn.init.zeros_(convolution.weight)
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)
    return convolution
