"""Maps in place of a tensor, for the rivals that predict FA, MD, RD and colour FA, and the way back [E13].

Colour FA has no signs, so three of the four diagonals of a plane cannot come back: that is the published way.
Axes: b batch, f map (FA, MD, RD, red, green, blue), x y z space.
"""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.dti.cylinder import tensor_from_maps
from tensorldm.dti.maps import colour_fa, fractional_anisotropy, mean_diffusivity, radial_diffusivity
from tensorldm.shapes import Components, Masks

NUM_MAPS = 6
MAP_SCALES = (0.3, 1e-3, 1e-3, 0.3, 0.3, 0.3)
"""What a network sees as 1 [choice: rival-maps]: FA and colours near their spread in a brain, mm²/s for MD and RD."""

Maps = Float[Tensor, "b 6 x y z"]


@torch.no_grad()
def maps_of(components: Components, mask: Masks) -> Maps:
    """Maps of tensors in mm²/s, in network units, zero outside the mask."""
    with torch.autocast(components.device.type, enabled=False):
        packed = rearrange(components.float(), "b d x y z -> b x y z d")[mask]
        scalars = [fractional_anisotropy(packed), mean_diffusivity(packed), radial_diffusivity(packed)]
        values = torch.cat([torch.stack(scalars, dim=-1), colour_fa(packed)], dim=-1)
    volume = values.new_zeros(*mask.shape, NUM_MAPS)
    volume[mask] = values / values.new_tensor(MAP_SCALES)
    return rearrange(volume, "b x y z f -> b f x y z")


def tensor_of(maps: Maps) -> Components:
    """Tensors in mm²/s from maps in network units; what no map can be is taken to the nearest that it can."""
    physical = rearrange(maps, "b f x y z -> b x y z f").float() * maps.new_tensor(MAP_SCALES, dtype=torch.float32)
    fa, md, rd = (physical[..., index].clamp(min=0) for index in range(3))
    packed = tensor_from_maps(md, rd, fa.clamp(max=1), physical[..., 3:].clamp(0, 1))
    return rearrange(packed, "b x y z d -> b d x y z")
