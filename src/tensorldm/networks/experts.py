"""Mixture-of-experts DWI conditioner [E7]: w_d = softmax(g(e_d)), Φ^d = Σ_c w_dc f_c(φ̄_c).

Every expert always runs (dense), and a gate per tensor component mixes what they say. Two forms: an expert for each
of the paper's four volumes; or one expert told its volume's gradient, for any number of volumes, with a gate that
sees component and gradient together.
Axes: b batch, d component (6), c DWI volume, f feature, v component vector, g gradient embedding, x y z space.
"""

from abc import ABC, abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from einops import einsum, repeat
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.networks.conditioner import ScanFeatures
from tensorldm.networks.film import ResidualBlock
from tensorldm.networks.layers import AnyStack, Pointwise
from tensorldm.shapes import Latents

Routing = Literal["learned", "uniform"]
"""uniform: the plain mean of the experts, the paper's ablation without the mixture."""

ComponentVectors = Float[Tensor, "6 v"]
Gates = Float[Tensor, "b 6 c"]
"""Shares of the volumes for each component; each row sums to one."""


class Experts(nn.Module, ABC):
    """Contract and common part of both forms."""

    def __init__(self, pooled_channels: int, channels: int, *, sets: int, gradient_channels: int, routing: Routing):
        super().__init__()
        self.routing: Routing = routing
        self.narrow = Pointwise(pooled_channels, channels, sets=sets)
        self.block = ResidualBlock(channels, channels, sets=sets, vector_channels=gradient_channels)

    def gates(self, features: ScanFeatures, component_vectors: ComponentVectors) -> Gates:
        """w_dc, for the mixture and for the routing table."""
        if self.routing == "uniform":
            number, volumes = features.gradients.shape[:2]
            return component_vectors.new_full((number, len(component_vectors), volumes), 1 / volumes)
        return self.gate_logits(features.gradients, component_vectors).softmax(dim=-1)

    @abstractmethod
    def gate_logits(self, gradients: Float[Tensor, "b c g"], component_vectors: ComponentVectors) -> Gates:
        """g(e_d) before the softmax over volumes."""

    def forward(self, features: ScanFeatures, component_vectors: ComponentVectors) -> Latents:
        """Φ^d on the latents' grid."""
        opinions = self._opinions(features)
        gates = self.gates(features, component_vectors).to(opinions.dtype)
        return einsum(gates, opinions, "b d c, b c f x y z -> b d f x y z")

    def _opinions(self, features: ScanFeatures) -> AnyStack:
        """f_c(φ̄_c) of every volume."""
        vector = F.silu(features.gradients) if self.block.film_vector is not None else None
        opinions: Tensor = self.block(self.narrow(features.pooled), vector=vector)
        return opinions


class FixedExperts(Experts):
    """The paper's four experts, each with weights of its own."""

    def __init__(
        self,
        pooled_channels: int,
        channels: int,
        *,
        vector_channels: int,
        num_volumes: int = 4,
        routing: Routing = "learned",
    ) -> None:
        super().__init__(pooled_channels, channels, sets=num_volumes, gradient_channels=0, routing=routing)
        self.gate = nn.Sequential(
            nn.Linear(vector_channels, vector_channels), nn.SiLU(), nn.Linear(vector_channels, num_volumes)
        )

    def gate_logits(self, gradients: Float[Tensor, "b c g"], component_vectors: ComponentVectors) -> Gates:
        """The same for every subject: the gate reads the component alone."""
        logits: Tensor = self.gate(component_vectors)
        return repeat(logits, "d c -> b d c", b=len(gradients))


class DirectionExperts(Experts):
    """One expert modulated by γ_c, and a gate on (v_d, γ_c)."""

    def __init__(
        self,
        pooled_channels: int,
        channels: int,
        *,
        vector_channels: int,
        gradient_channels: int,
        routing: Routing = "learned",
    ) -> None:
        super().__init__(pooled_channels, channels, sets=1, gradient_channels=gradient_channels, routing=routing)
        hidden = max(vector_channels, gradient_channels)
        self.gate = nn.Sequential(
            nn.Linear(vector_channels + gradient_channels, hidden), nn.SiLU(), nn.Linear(hidden, 1)
        )

    def gate_logits(self, gradients: Float[Tensor, "b c g"], component_vectors: ComponentVectors) -> Gates:
        """A number for each pair of component and volume."""
        components = repeat(component_vectors, "d v -> b d c v", b=gradients.shape[0], c=gradients.shape[1])
        volumes = repeat(gradients, "b c g -> b d c g", d=len(component_vectors))
        logits: Tensor = self.gate(torch.cat([components, volumes], dim=-1))
        return logits.squeeze(-1)
