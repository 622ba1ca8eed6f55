"""The scale of the latents, measured once before they are diffused."""

import torch

from tensorldm.config.training import Box
from tensorldm.data.scaling import TensorScaling
from tensorldm.model import TensorLDM
from tensorldm.training.sources import Source

SUBJECTS = 16
"""[choice: latent-scale] Training subjects that mean and spread are taken from: a million latents each."""
APART = 1009
"""Positions between two of them. Neighbours of a virtual stream have the same number of directions, and what twelve
leave open is three to four times smaller than what three do. A prime, so that a stream that repeats gives others."""


@torch.no_grad()
def measure_latent_scale(
    model: TensorLDM, source: Source, *, box: Box, scaling: TensorScaling, seed: int, device: torch.device
) -> None:
    """Give each group's latents mean zero and variance one over the brains of some training subjects."""
    stream = source.volumes(box)
    latents, inside = [], []
    for position in range(0, SUBJECTS * APART, APART):
        batch = stream.batch(seed=seed, position=position, size=1).to(device)
        features = model.scan_features(**batch.scan)
        latents.append(model.autoencoder.encode(scaling.scale(batch.components), features))
        inside.append(model.latent_mask(batch.mask))
    model.set_latent_scale(torch.cat(latents), torch.cat(inside))
