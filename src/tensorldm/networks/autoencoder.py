"""The anatomy-conditioned autoencoder (Phase I): two group encoders, a codebook each, six decoders.

The decoders are given the anatomy by the conditioner, so the latents need only hold what the DWIs do not say. In which
form they read it is for the caller to say (``TensorLDM.decoder_condition``).
Axes: b batch, d component (6), f latent channel, x y z space, n latent vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tensorldm.components import DIAGONAL, OFF_DIAGONAL
from tensorldm.networks.conditioner import Conditioner, ScanFeatures
from tensorldm.networks.decoder import Decoder
from tensorldm.networks.encoder import Encoder
from tensorldm.networks.layers import Condition
from tensorldm.networks.quantizer import VectorQuantizer
from tensorldm.shapes import Components, Latents

GROUPS = (DIAGONAL, OFF_DIAGONAL)
"""Components that share an encoder and a codebook, in the package's order."""


@dataclass(frozen=True)
class QuantizedLatents:
    """Latents made of codes, and the two codebooks' report (diagonal, off-diagonal)."""

    latents: Latents
    commitment: Float[Tensor, ""]
    perplexity: Float[Tensor, "2"]


@dataclass(frozen=True)
class Reconstruction:
    """What a Phase I objective needs: decoded components and the quantisation loss [E4, E5]."""

    components: Components
    commitment: Float[Tensor, ""]
    perplexity: Float[Tensor, "2"]


class Autoencoder(nn.Module):
    """Encoders, codebooks, conditioner and decoders, put together from their parts."""

    def __init__(
        self,
        encoders: tuple[Encoder, Encoder],
        quantizers: tuple[VectorQuantizer, VectorQuantizer],
        *,
        conditioner: Conditioner,
        decoder: Decoder,
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)
        self.quantizers = nn.ModuleList(quantizers)
        self.conditioner = conditioner
        self.decoder = decoder

    def encode(self, components: Components, features: ScanFeatures | None = None) -> Float[Tensor, "b 6 _ _ _ _"]:
        """Latents before quantisation, in the encoders' own units: of the difference from what ``features`` expect."""
        if features is not None:
            components = features.difference(components)
        parts = [
            encoder(components[:, group[0] : group[-1] + 1])
            for encoder, group in zip(self.encoders, GROUPS, strict=True)
        ]
        return torch.cat(parts, dim=1)

    def quantize(self, latents: Latents, inside: Bool[Tensor, "b x y z"] | None = None) -> QuantizedLatents:
        """Each latent vector replaced by the nearest code of its group; ``inside`` marks the latents that count."""
        b, _, _, x, y, z = latents.shape
        parts, commitments, perplexities = [], [], []
        for quantizer, group in zip(self.quantizers, GROUPS, strict=True):
            members = latents[:, group[0] : group[-1] + 1]
            counted = None if inside is None else repeat(inside, "b x y z -> (b s x y z)", s=len(group))
            result = quantizer(rearrange(members, "b s f x y z -> (b s x y z) f"), counted, subjects=b)
            parts.append(rearrange(result.latents, "(b s x y z) f -> b s f x y z", b=b, s=len(group), x=x, y=y, z=z))
            commitments.append(result.commitment)
            perplexities.append(result.perplexity)
        return QuantizedLatents(torch.cat(parts, dim=1), torch.stack(commitments).sum(), torch.stack(perplexities))

    def decode(
        self, quantized: Latents, features: ScanFeatures, *, condition: Sequence[Condition]
    ) -> Float[Tensor, "b 6 _ _ _"]:
        """Components in network units, from latents made of codes; ``condition`` is what the decoders read."""
        decoded: Tensor = self.decoder(quantized, condition)
        return features.undo_difference(decoded)

    def forward(
        self,
        components: Components,
        features: ScanFeatures,
        *,
        condition: Sequence[Condition],
        inside: Bool[Tensor, "b _ _ _"] | None = None,
    ) -> Reconstruction:
        """Encode, quantise and decode; ``inside`` is the mask on the latents' grid."""
        quantized = self.quantize(self.encode(components, features), inside)
        decoded = self.decode(quantized.latents, features, condition=condition)
        return Reconstruction(decoded, quantized.commitment, quantized.perplexity)
