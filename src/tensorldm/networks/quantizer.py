"""Vector quantisation with a codebook that follows the data (EMA), in float32 and the same on every rank.

No gradient moves the codebook: each code is the running mean of the latents that chose it. A code that few latents
choose is put where a latent of the present batch lies, so a codebook cannot collapse silently; perplexity is
reported with every call. A frozen quantizer moves no buffer.
Axes: n latent vector, v its entries, k code.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

DECAY = 0.99  # [choice: codebook]
COMMITMENT = 0.25  # [choice: codebook]
DEAD_BELOW = 0.01  # [choice: dead-codes] of the count that every code would have if all were used alike
DISTANCES_AT_ONCE = 2**24
"""Entries of the latents × codes matrix that are held at a time: 64 MiB."""
DISTANCES_IN_CACHE = 2**20
"""The same on a CPU, which finds the least of 4 MiB before they leave its cache, twice as fast."""
GOLDEN_RATIO = 0.6180339887498949
SMALLEST_COUNT = 1e-12

LatentVectors = Float[Tensor, "n v"]


@dataclass(frozen=True)
class Quantized:
    """Quantised latents and what a trainer wants to know about them."""

    latents: LatentVectors
    """Codes, with the gradient of the latents they replace (straight-through)."""
    codes: Int[Tensor, " n"]
    commitment: Float[Tensor, ""]
    """COMMITMENT · mean squared distance to the code, pulling the encoder; the codebook follows by itself."""
    perplexity: Float[Tensor, ""]
    """exp(entropy) of the codes' use in this batch: 1 is collapse, the number of codes is even use."""


class VectorQuantizer(nn.Module):
    """A codebook of ``num_codes`` vectors; latents are replaced by their nearest code."""

    def __init__(self, num_codes: int, channels: int, *, decay: float = DECAY, commitment: float = COMMITMENT) -> None:
        super().__init__()
        self.decay, self.commitment = decay, commitment
        self.frozen = False
        self.register_buffer("codebook", torch.randn(num_codes, channels))
        self.register_buffer("counts", torch.zeros(num_codes))
        self.register_buffer("sums", torch.zeros(num_codes, channels))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.codebook: Tensor
        self.counts: Tensor
        self.sums: Tensor
        self.updates: Tensor

    def forward(
        self, latents: LatentVectors, inside: Bool[Tensor, " n"] | None = None, *, subjects: int = 1
    ) -> Quantized:
        """Quantise all latents; those ``inside`` (default: all) teach the codebook and count in loss and perplexity.

        The commitment is a mean over each subject, then over subjects [choice: commitment-mean].
        """
        with torch.autocast(latents.device.type, enabled=False):
            wide = latents.float()
            codes = nearest_codes(wide.detach(), self.codebook)
            weights = torch.ones_like(wide[:, 0]) if inside is None else inside.to(wide.dtype)
            chosen = F.embedding(codes, self.codebook)
            squares = (wide - chosen).square().mean(dim=1)
            # A mean over each subject's latents (they come one subject after the other), then over subjects.
            each = (squares * weights).reshape(subjects, -1).sum(dim=1)
            commitment = self.commitment * (each / weights.reshape(subjects, -1).sum(dim=1).clamp_min(1)).mean()
            straight_through = wide + (chosen - wide).detach()
            counts = torch.zeros_like(self.counts).index_add(0, codes, weights)
            if self.training and not self.frozen:
                _sum_over_ranks(counts)
                self._follow(wide.detach(), codes, weights=weights, counts=counts)
        return Quantized(straight_through.to(latents.dtype), codes, commitment, _perplexity(counts))

    @torch.no_grad()
    def _follow(
        self,
        latents: LatentVectors,
        codes: Int[Tensor, " n"],
        *,
        weights: Float[Tensor, " n"],
        counts: Float[Tensor, " k"],
    ) -> None:
        """One EMA step of counts, sums and codes, then revival; counts and sums run over the latents of all ranks."""
        sums = torch.zeros_like(self.sums).index_add_(0, codes, latents * weights[:, None])
        _sum_over_ranks(sums)
        self.counts.mul_(self.decay).add_(counts, alpha=1 - self.decay)
        self.sums.mul_(self.decay).add_(sums, alpha=1 - self.decay)
        means = self.sums / self.counts.clamp_min(SMALLEST_COUNT)[:, None]
        self.codebook.copy_(torch.where(self.counts[:, None] > SMALLEST_COUNT, means, self.codebook))
        self._revive(latents, weights=weights)
        self.updates.add_(1)

    def _revive(self, latents: LatentVectors, *, weights: Float[Tensor, " n"]) -> None:
        """Move rarely used codes onto latents of this batch, and give them the mean count so that they live a while."""
        fair_share = self.counts.sum() / len(self.counts)
        dead = self.counts <= DEAD_BELOW * fair_share
        candidates, usable = self._candidates(latents, weights=weights)
        dead = dead & usable
        self.codebook.copy_(torch.where(dead[:, None], candidates, self.codebook))
        self.counts.copy_(torch.where(dead, fair_share, self.counts))
        self.sums.copy_(torch.where(dead[:, None], candidates * fair_share, self.sums))

    def _candidates(
        self, latents: LatentVectors, *, weights: Float[Tensor, " n"]
    ) -> tuple[Float[Tensor, "k v"], Bool[Tensor, " k"]]:
        """A latent for each code and whether it counts, spread over the batches of all ranks by a golden-ratio walk.

        No random numbers: the choice depends on the step alone, and two ranks choose as one with both batches would.
        """
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if _is_distributed() else (0, 1)
        number = len(latents)
        walk = torch.arange(len(self.codebook), device=latents.device, dtype=torch.float64)
        walk = (walk + (self.updates * len(self.codebook)).double()) * GOLDEN_RATIO
        picks = ((walk % 1.0) * number * ranks).long().clamp_max(number * ranks - 1)
        mine = picks // number == rank
        local = torch.where(mine, picks - rank * number, 0)
        flagged = torch.cat([latents, weights[:, None]], dim=1)[local] * mine[:, None]
        _sum_over_ranks(flagged)
        return flagged[:, :-1], flagged[:, -1] > 0


def nearest_codes(latents: LatentVectors, codebook: Float[Tensor, "k v"]) -> Int[Tensor, " n"]:
    """Index of the nearest code, from ‖c‖² - 2 c·z in pieces, so that latents × codes never exists as a whole.

    Both are first brought to the codebook's mean: far from the origin the difference of squares loses its digits.
    """
    middle = codebook.mean(dim=0)
    latents, codebook = latents - middle, codebook - middle
    lengths = codebook.square().sum(dim=1)
    entries = DISTANCES_AT_ONCE if latents.is_cuda else min(DISTANCES_IN_CACHE, DISTANCES_AT_ONCE)
    piece = max(1, entries // len(codebook))
    with _full_float32(latents):
        found = [torch.addmm(lengths, part, codebook.T, alpha=-2).argmin(dim=1) for part in torch.split(latents, piece)]
    return torch.cat(found)


@contextmanager
def _full_float32(latents: Tensor) -> Iterator[None]:
    """No TF32 for the distances: with 10 bits the wrong one of two neighbouring codes is chosen."""
    before = torch.get_float32_matmul_precision()
    if not latents.is_cuda or before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _perplexity(counts: Float[Tensor, " k"]) -> Float[Tensor, ""]:
    shares = counts / counts.sum().clamp_min(1)
    return torch.exp(torch.special.entr(shares).sum())


def _sum_over_ranks(values: Tensor) -> None:
    if _is_distributed():
        dist.all_reduce(values)


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
