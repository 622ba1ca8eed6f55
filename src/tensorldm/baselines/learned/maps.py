"""Maps in place of a tensor, for the rivals that predict FA, MD, RD and colour FA, and the way back [E13].

Colour FA has no signs, so three of the four diagonals of a plane cannot come back: that is the published way. With
signs, six more maps stand behind those: FA·v1v1ᵀ, the same for a direction and its opposite [choice: rival-signs].
Axes: b batch, f map (FA, MD, RD, red, green, blue; then xx yy zz xy xz yz of the signed form), x y z space.
"""

from typing import Final

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.components import COLUMNS, NUM_COMPONENTS, ROWS
from tensorldm.dti.cylinder import tensor_from_maps
from tensorldm.dti.maps import (
    colour_fa,
    fractional_anisotropy,
    mean_diffusivity,
    principal_direction,
    radial_diffusivity,
)
from tensorldm.shapes import Components, Masks

PUBLISHED: Final = 6
"""FA, MD, RD and the three colours."""
WITH_SIGNS: Final = PUBLISHED + NUM_COMPONENTS
MAP_SCALES: Final = (0.3, 1e-3, 1e-3, 0.3, 0.3, 0.3, *(0.3,) * NUM_COMPONENTS)
"""What a network sees as 1 [choice: rival-maps]: FA and colours near their spread in a brain, mm²/s for MD and RD."""

Maps = Float[Tensor, "b _ x y z"]


def num_maps(signs: bool) -> int:
    """How many maps are predicted, as published or with signs."""
    return WITH_SIGNS if signs else PUBLISHED


@torch.no_grad()
def maps_of(components: Components, mask: Masks, *, signs: bool = False) -> Maps:
    """Maps of tensors in mm²/s, in network units, zero outside the mask."""
    with torch.autocast(components.device.type, enabled=False):
        packed = rearrange(components.float(), "b d x y z -> b x y z d")[mask]
        fa = fractional_anisotropy(packed)
        parts = [torch.stack([fa, mean_diffusivity(packed), radial_diffusivity(packed)], dim=-1), colour_fa(packed)]
        if signs:
            v1 = principal_direction(packed)
            parts.append(fa[..., None] * v1[..., ROWS] * v1[..., COLUMNS])
        values = torch.cat(parts, dim=-1)
    volume = values.new_zeros(*mask.shape, values.shape[-1])
    volume[mask] = values / values.new_tensor(MAP_SCALES[: values.shape[-1]])
    return rearrange(volume, "b x y z f -> b f x y z")


def tensor_of(maps: Maps) -> Components:
    """Tensors in mm²/s from maps in network units; what no map can be is taken to the nearest that it can.

    Where the maps have signs v1 is the eigenvector of the predicted FA·v1v1ᵀ, and E13 is otherwise the same.
    """
    count = maps.shape[1]
    assert count in (PUBLISHED, WITH_SIGNS), f"{count} maps are neither the published ones nor those with signs"
    scales = maps.new_tensor(MAP_SCALES[:count], dtype=torch.float32)
    with torch.autocast(maps.device.type, enabled=False):
        physical = rearrange(maps, "b f x y z -> b x y z f").float() * scales
        fa, md, rd = (physical[..., index].clamp(min=0) for index in range(3))
        fa = fa.clamp(max=1)
        colour = physical[..., 3:PUBLISHED].clamp(0, 1)
        if count == WITH_SIGNS:
            colour = fa[..., None] * principal_direction(physical[..., PUBLISHED:])
        packed = tensor_from_maps(md, rd, fa, colour)
    return rearrange(packed, "b x y z d -> b d x y z")
