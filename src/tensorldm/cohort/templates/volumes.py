"""Lists of a mask's voxels as volumes, and anatomies on another device; torch only."""

from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Tensor

from tensorldm.cohort.anatomy import Anatomy, Bundle


def volume_of(values: Tensor, mask: Bool[Tensor, "x y z"]) -> Tensor:
    """A list of the mask's voxels (first axis) as a volume with space last; zero outside."""
    rows = values.movedim(0, -1)
    volume = torch.zeros(*rows.shape[:-1], *mask.shape, dtype=values.dtype)
    volume[..., mask] = rows
    return volume


def moved(anatomy: Anatomy, device: torch.device | str) -> Anatomy:
    """The same anatomy on another device."""
    return replace(
        anatomy,
        tensors=anatomy.tensors.to(device),
        fractions=anatomy.fractions.to(device),
        s0=anatomy.s0.to(device),
        tissue=anatomy.tissue.to(device),
        mask=anatomy.mask.to(device),
        bundles={
            name: Bundle(mask=bundle.mask.to(device), directions=bundle.directions.to(device))
            for name, bundle in anatomy.bundles.items()
        },
    )
