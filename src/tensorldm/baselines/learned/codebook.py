"""Keeping MONAI's codebook alive: codes start from latents, and codes that nobody uses start anew from others.

MONAI draws its first codes from a unit normal, where small latents all meet the one code nearest to zero; the decoder
then gives every head the same tensor, and the loss still falls. A rival that collapses is no rival [choice: rival-ldm].
"""

import torch
from jaxtyping import Float
from monai.networks.layers.vector_quantizer import EMAQuantizer
from torch import Generator, Tensor

LEAST_USE = 0.01
"""Of the even share of latents, on the running mean; below it a code counts as dead."""

LatentList = Float[Tensor, "_ f"]


def codes_as_buffer(quantizer: EMAQuantizer) -> None:
    """Hold the codes in a buffer, under the same name: no gradient moves them, and the weights' average follows them.

    MONAI holds them in a parameter without gradient, which looks frozen and yet is written at every step.
    """
    codes = quantizer.embedding.weight.detach().clone()
    del quantizer.embedding.weight
    quantizer.embedding.register_buffer("weight", codes)


@torch.no_grad()
def start_codes(quantizer: EMAQuantizer, latents: LatentList, generator: Generator) -> None:
    """Codes drawn from latents."""
    codes = _drawn(latents, quantizer.num_embeddings, generator)
    quantizer.embedding.weight.copy_(codes)
    quantizer.ema_w.copy_(codes)
    quantizer.ema_cluster_size.fill_(1.0)


@torch.no_grad()
def revive_codes(quantizer: EMAQuantizer, latents: LatentList, generator: Generator) -> None:
    """Give codes that are hardly used the place of some latents; with several processes, the first one's."""
    use = quantizer.ema_cluster_size
    share = use.sum() / len(use)
    fresh = _drawn(latents, len(use), generator)
    if torch.distributed.is_initialized():
        torch.distributed.broadcast(fresh, 0)
    dead = use < LEAST_USE * share
    quantizer.embedding.weight.copy_(torch.where(dead[:, None], fresh, quantizer.embedding.weight))
    quantizer.ema_w.copy_(torch.where(dead[:, None], fresh * share, quantizer.ema_w))
    quantizer.ema_cluster_size.copy_(torch.where(dead, share, use))


def _drawn(latents: LatentList, number: int, generator: Generator) -> LatentList:
    which = torch.randint(len(latents), (number,), generator=generator, device=generator.device)
    return latents[which.to(latents.device)].float()
