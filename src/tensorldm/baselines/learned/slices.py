"""Axial slices of heads, for the rivals that know no third dimension.

Axes: b batch of heads, n slice, f channel, x y z space.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Generator, Tensor

from tensorldm.shapes import Masks

Slices = Float[Tensor, "n _ x y"]
AT_ONCE = 32
"""Slices that a network sees at a time when a whole head is reconstructed."""


def draw_slices(mask: Masks, number: int, generators: Sequence[Generator]) -> Int[Tensor, "b n"]:
    """``number`` slices of each head that hold brain, none twice as long as there are enough."""
    drawn = []
    for inside, random in zip(mask, generators, strict=True):
        found = torch.nonzero(inside.any(dim=(0, 1)))[:, 0]
        candidates = found if len(found) else torch.arange(inside.shape[-1], device=mask.device)
        rounds = -(-number // len(candidates))
        order = [torch.randperm(len(candidates), generator=random, device=random.device) for _ in range(rounds)]
        drawn.append(candidates[torch.cat(order)[:number].to(mask.device)])
    return torch.stack(drawn)


def take_slices(volume: Float[Tensor, "b f x y z"], places: Int[Tensor, "b n"]) -> Float[Tensor, "_ f x y"]:
    """These slices of each head, one after another."""
    taken = [head[..., which] for head, which in zip(volume, places, strict=True)]
    return rearrange(torch.stack(taken), "b f x y n -> (b n) f x y")


def by_slices(
    network: Callable[[Slices], Slices], volume: Float[Tensor, "b f x y z"], *, at_once: int = AT_ONCE
) -> Float[Tensor, "b _ x y z"]:
    """Every slice of a volume through a network, some at a time."""
    slices = rearrange(volume, "b f x y z -> (b z) f x y")
    found = torch.cat([network(part) for part in torch.split(slices, at_once)])
    return rearrange(found, "(b z) f x y -> b f x y z", b=len(volume))


def slices_with_brain(mask: Masks) -> slice:
    """From the first slice of one head that holds brain to the last; all where none does."""
    held = torch.nonzero(mask[0].any(dim=(0, 1))).flatten().tolist()
    return slice(held[0], held[-1] + 1) if held else slice(0, mask.shape[-1])


def among_all(values: Float[Tensor, "k f x y n"], held: slice, *, height: int) -> Float[Tensor, "k f x y z"]:
    """Slices at their place in the volume, zeros above and below."""
    return F.pad(values, (held.start, height - held.stop))
