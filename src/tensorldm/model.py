"""TensorLDM assembled: DWIs in, tensor components out, all in network units.

Phase I is ``encode`` and ``decode`` with the anatomy of ``scan_features``; Phase II is ``condition`` and ``denoise``.
``reconstruct`` is the whole way at inference: ``read`` the scan once, ``draw`` samples. A volume may have any size: it
is padded behind to what the networks need, and the result is cropped; positions are counted from the brain's centre, so
padding does not move them. It is the mask's, unless the volume is a part of a head and ``centre`` says where that is.
Axes: b batch, c DWI volume, d component (6), f latent channel, x y z space.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from tensorldm.batch import beside
from tensorldm.diffusion import Denoise, NoiseSchedule, Prediction, Spacing, sample, step_pairs
from tensorldm.networks.attention import AttentionMode
from tensorldm.networks.autoencoder import GROUPS, Autoencoder
from tensorldm.networks.conditioner import ScanFeatures
from tensorldm.networks.embeddings import Coordinates, latent_coordinates
from tensorldm.networks.expectation import Expectation
from tensorldm.networks.expert_levels import DecoderCondition, ExpertLevels
from tensorldm.networks.experts import Experts, Gates
from tensorldm.networks.layers import Condition
from tensorldm.networks.spread import Spread
from tensorldm.networks.unet import DenoiseCondition, UNet
from tensorldm.scan_facts import ScanFacts, centre_of, padded, scan_facts
from tensorldm.shapes import Components, Dwi, Latents, Masks

SMALLEST_SPREAD = 1e-6

Size = tuple[int, int, int]


class ScanReading(NamedTuple):
    """All that sampling needs of a scan, the same for every step and sample."""

    features: ScanFeatures
    condition: DenoiseCondition
    mask: Masks


class TensorLDM(nn.Module):
    """The autoencoder, the experts and the U-Net, with the latents' scale and the noise schedule."""

    def __init__(
        self,
        autoencoder: Autoencoder,
        unet: UNet,
        *,
        experts: Experts,
        schedule: NoiseSchedule,
        latent_channels: int,
        component_scales: Sequence[float],
        prediction: Prediction = "noise",
        expectation: Expectation | None = None,
        expert_levels: ExpertLevels | None = None,
        spread: Spread | None = None,
        decodes_codes: bool = True,
    ) -> None:
        """``component_scales`` are mm²/s for one network unit, component by component.

        With ``expert_levels`` the decoders can be switched to Φ^d. ``decodes_codes``: whether ``decode`` quantises.
        """
        super().__init__()
        self.autoencoder, self.unet, self.experts = autoencoder, unet, experts
        self.expectation, self.spread, self.expert_levels = expectation, spread, expert_levels
        self.decoder_reads: DecoderCondition = "anatomy"
        self.schedule, self.prediction = schedule, prediction
        self.component_scales = tuple(component_scales)
        self.latent_channels, self.decodes_codes = latent_channels, decodes_codes
        self.compression = autoencoder.decoder.patch * 2 ** (len(autoencoder.conditioner.channels) - 1)
        self.register_buffer("latent_mean", torch.zeros(len(GROUPS), latent_channels))
        self.register_buffer("latent_spread", torch.ones(len(GROUPS), latent_channels))
        self.latent_mean: Tensor
        self.latent_spread: Tensor

    @property
    def side_multiple(self) -> int:
        """What volumes are padded to a multiple of, in voxels."""
        multiple: int = self.compression * self.unet.side_multiple
        return multiple if self.expectation is None else lcm(multiple, self.expectation.side_multiple)

    def latent_size(self, size: Size) -> Size:
        """Grid of the latents of a volume of this size."""
        x, y, z = (-(-side // self.side_multiple) * self.side_multiple // self.compression for side in size)
        return x, y, z

    def latent_shape(self, number: int, size: Size) -> tuple[int, ...]:
        """Shape of the noise for ``number`` samples of a volume of this size."""
        return number, 6, self.latent_channels, *self.latent_size(size)

    def latent_mask(self, mask: Masks) -> Bool[Tensor, "b _ _ _"]:
        """Latents that any voxel of the mask falls into."""
        inside = padded(rearrange(mask, "b x y z -> b 1 x y z").float(), self.side_multiple)
        return rearrange(F.max_pool3d(inside, self.compression) > 0, "b 1 x y z -> b x y z")

    def set_joint(self, decoder: AttentionMode, unet: AttentionMode) -> None:
        """Which parts let the components see each other: the decoder from Stage 3, the U-Net from Stage 5."""
        self.autoencoder.decoder.set_joint(decoder)
        self.unet.set_joint(unet)

    def set_decoder_condition(self, reads: DecoderCondition) -> None:
        """What the decoders read of a scan: Φ_X, or from Stage 4 on Φ^d [choice: decoder-condition]."""
        assert reads == "anatomy" or self.expert_levels is not None, "these decoders were built for Φ_X alone"
        self.decoder_reads = reads

    def decoder_condition(self, features: ScanFeatures) -> tuple[Condition, ...]:
        """What the decoders read of this scan, fine to coarse; everything that decodes asks here."""
        if self.decoder_reads == "anatomy":
            return features.fused
        assert self.expert_levels is not None
        levels: tuple[Condition, ...] = self.expert_levels(self.mix(features))
        return levels

    def scan_features(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        centre: Float[Tensor, "b 3"] | None = None,
    ) -> ScanFeatures:
        """All that the DWIs inside the mask tell, once for all steps and samples."""
        facts = self.facts(dwi, bvals, directions=directions, mask=mask, voxel_size=voxel_size, centre=centre)
        return self.features_of(facts)

    def facts(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        centre: Float[Tensor, "b 3"] | None = None,
    ) -> ScanFacts:
        """What is known of a scan without any weights."""
        return scan_facts(
            dwi,
            bvals,
            directions=directions,
            mask=mask,
            voxel_size=voxel_size,
            centre=centre,
            side_multiple=self.side_multiple,
            component_scales=self.component_scales if self.autoencoder.conditioner.gradient_channels else None,
            describe=self.expectation.embedding.describe if self.expectation else None,
        )

    def features_of(self, facts: ScanFacts) -> ScanFeatures:
        """What the networks make of the facts; nothing in it needs the host once they lie on the device."""
        dwi, bvals, directions, inside = facts[:4]
        conditioner, solved = self.autoencoder.conditioner, facts.solved
        expected = spread = None
        if self.expectation is not None and solved is not None:
            expected = self.expected(facts) * inside[:, None]
            if self.spread is not None:
                known, described = facts.for_expectation
                vector = self.expectation.embedding.embed(described)
                spread = self.spread(known, expected, mask=inside, vector=vector)
            solved = torch.cat([solved, expected.to(solved)], dim=1)
        features: ScanFeatures = conditioner(dwi, bvals, directions=directions, analytic=solved, adc=facts.adc)
        return replace(features, expected=expected, spread=spread)

    def expected(self, facts: ScanFacts) -> Components:
        """The expected tensor on the padded grid; outside the mask anything."""
        assert self.expectation is not None, "this model has no expectation"
        known, described = facts.for_expectation
        if self.expectation.both_ways:
            both: Components = self.expectation(known, facts.bvals, directions=facts.directions)
            return both
        return self.expectation.one_way(known, described)

    def expect(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        centre: Float[Tensor, "b 3"] | None = None,
    ) -> Components:
        """The expected tensor alone, zero outside the mask."""
        facts = self.facts(dwi, bvals, directions=directions, mask=mask, voxel_size=voxel_size, centre=centre)
        x, y, z = mask.shape[1:]
        return self.expected(facts)[..., :x, :y, :z] * mask[:, None]

    def encode(self, components: Components, features: ScanFeatures) -> Float[Tensor, "b 6 _ _ _ _"]:
        """Latents before quantisation, of mean zero and variance one in each group; padded grid."""
        return self.normalise(self.autoencoder.encode(padded(components, self.side_multiple), features))

    def decode(self, latents: Latents, features: ScanFeatures, *, size: Size) -> Float[Tensor, "b 6 _ _ _"]:
        """Components of a volume of this size, from normalised latents, quantised first unless the settings say not.

        Decoders that learned from codes read what lies between them too [choice: decoded-latents].
        """
        decodable = self.denormalise(latents)
        if self.decodes_codes:
            decodable = self.autoencoder.quantize(decodable).latents
        x, y, z = size
        condition = self.decoder_condition(features)
        return self.autoencoder.decode(decodable, features, condition=condition)[..., :x, :y, :z]

    def normalise(self, latents: Latents) -> Latents:
        """From the encoders' units to those that are diffused."""
        mean, spread = self._statistics()
        return (latents - mean) / spread

    def denormalise(self, latents: Latents) -> Latents:
        """From the units that are diffused to the encoders' own."""
        mean, spread = self._statistics()
        return latents * spread + mean

    @torch.no_grad()
    def set_latent_scale(self, latents: Latents, inside: Bool[Tensor, "b x y z"]) -> None:
        """Take mean and spread of each group's channels from raw latents (``autoencoder.encode``) inside the mask."""
        for index, group in enumerate(GROUPS):
            members = rearrange(latents[:, group[0] : group[-1] + 1], "b s f x y z -> b x y z s f")[inside].float()
            self.latent_mean[index] = members.mean(dim=(0, 1))
            self.latent_spread[index] = members.std(dim=(0, 1)).clamp_min(SMALLEST_SPREAD)

    def gates(self, features: ScanFeatures) -> Gates:
        """Share of each DWI volume in each component's condition, for the routing table."""
        return self.experts.gates(features, self.unet.component_embedding.flat_vectors())

    def mix(self, features: ScanFeatures) -> Float[Tensor, "b 6 _ _ _ _"]:
        """Φ^d of every component, on the latents' grid [E7]."""
        mixed: Tensor = self.experts(features, self.unet.component_embedding.flat_vectors())
        return mixed

    def places(
        self, features: ScanFeatures, centre: Float[Tensor, "b 3"], *, voxel_size: Float[Tensor, "b 3"]
    ) -> Coordinates:
        """mm from the brain's ``centre`` (in voxels) along each axis of the latents' grid, where the features are."""
        x, y, z = features.pooled.shape[-3:]
        step = voxel_size.to(centre.device)
        along = latent_coordinates((x, y, z), centre, voxel_size=step, compression=self.compression)
        return beside(along[0], features.pooled), beside(along[1], features.pooled), beside(along[2], features.pooled)

    def condition(self, features: ScanFeatures, places: Coordinates) -> DenoiseCondition:
        """What the U-Net is told beside latents and time; nothing in it needs the host."""
        return self.unet.condition(self.mix(features), places)

    def denoise(self, latents: Latents, steps: Int[Tensor, " _"], *, condition: DenoiseCondition) -> Latents:
        """The network's prediction [E9], of the noise, the velocity or the clean latents; one step may serve all."""
        return self.unet.denoise(latents, steps, condition=condition)

    def ready(self) -> "TensorLDM":
        """Set for inference, with kernels and features channels-last in memory: convolutions and norms run faster so.

        Of weights only places in memory change, no value. An expectation that is mirrored now looks both ways.
        """
        self.eval()
        if self.expectation is not None:
            self.expectation.both_ways = self.expectation.mirrored
        self.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]  # torch's stub leaves it out
        return self

    @torch.inference_mode()
    def read(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        centre: Float[Tensor, "b 3"] | None = None,
    ) -> ScanReading:
        """Encode and condition once, for however many steps and samples follow."""
        centre = centre_of(centre, mask)
        facts = self.facts(dwi, bvals, directions=directions, mask=mask, voxel_size=voxel_size, centre=centre)
        features = self.features_of(facts)
        places = self.places(features, centre, voxel_size=voxel_size)
        return ScanReading(features, self.condition(features, places), mask)

    @torch.inference_mode()
    def draw(
        self,
        reading: ScanReading,
        noise: Float[Tensor, "_ 6 f _ _ _"],
        *,
        num_steps: int = 25,
        sampler: str = "ddim",
        spacing: Spacing = "trailing",
        eta: float = 0.0,
        generator: Generator | None = None,
        denoise: Denoise | None = None,
    ) -> Float[Tensor, "_ 6 x y z"]:
        """Components in network units, zero outside the mask; one sample for each noise.

        One subject (b = 1) may have many noises. ``noise`` has the shape that ``latent_shape`` gives. ``denoise`` is
        ``self.denoise`` told of this scan, where a faster form of it is at hand (``networks.recording``).
        """

        def predict(latents: Latents, step: int) -> Latents:
            # All samples are at the same step: one time embedding serves them.
            return self.denoise(latents, torch.full((1,), step, device=latents.device), condition=reading.condition)

        latents = sample(
            predict if denoise is None else denoise,
            noise,
            pairs=step_pairs(num_steps, self.schedule, spacing=spacing),
            schedule=self.schedule,
            sampler=sampler,
            prediction=self.prediction,
            generator=generator,
            eta=eta,
        )
        x, y, z = reading.mask.shape[1:]
        return self.decode(latents, reading.features, size=(x, y, z)) * reading.mask[:, None]

    def reconstruct(
        self,
        dwi: Dwi,
        bvals: Float[Tensor, "b c"],
        *,
        directions: Float[Tensor, "b c 3"],
        mask: Masks,
        voxel_size: Float[Tensor, "b 3"],
        centre: Float[Tensor, "b 3"] | None = None,
        noise: Float[Tensor, "_ 6 f _ _ _"],
        num_steps: int = 25,
        sampler: str = "ddim",
        spacing: Spacing = "trailing",
        eta: float = 0.0,
        generator: Generator | None = None,
    ) -> Float[Tensor, "_ 6 x y z"]:
        """``read``, then ``draw``."""
        reading = self.read(dwi, bvals, directions=directions, mask=mask, voxel_size=voxel_size, centre=centre)
        return self.draw(
            reading, noise, num_steps=num_steps, sampler=sampler, spacing=spacing, eta=eta, generator=generator
        )

    def _statistics(self) -> tuple[Float[Tensor, "1 6 f 1 1 1"], Float[Tensor, "1 6 f 1 1 1"]]:
        mean, spread = (
            torch.cat([value.expand(len(group), -1) for value, group in zip(values, GROUPS, strict=True)])
            for values in (self.latent_mean, self.latent_spread)
        )
        return mean[None, :, :, None, None, None], spread[None, :, :, None, None, None]
