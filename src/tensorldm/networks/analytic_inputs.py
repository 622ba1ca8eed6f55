"""What the DWIs say by themselves, as input channels: the minimum-norm tensor and each volume's ADC.

Axes: b batch, c DWI volume, d component (6), x y z space.
"""

from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.components import DIAGONAL
from tensorldm.dti.analytic import apparent_diffusion, minimum_norm
from tensorldm.shapes import Components, Dwi, Masks

LARGEST_MM2_PER_S = 5e-3
"""[choice: analytic-limit] Above free water at body temperature (3e-3) with room for noise; beyond it is only noise."""


@torch.no_grad()
def analytic_inputs(
    dwi: Dwi,
    bvals: Float[Tensor, "b c"],
    *,
    directions: Float[Tensor, "b c 3"],
    mask: Masks,
    component_scales: Sequence[float],
) -> tuple[Components, Dwi]:
    """Minimum-norm tensor and ADC maps in network units (mm²/s over the component's scale), zero outside the mask."""
    scales = dwi.new_tensor(component_scales).reshape(-1, 1, 1, 1)
    tensors, adcs = [], []
    for volumes, b, g in zip(dwi.float(), bvals, directions, strict=True):
        signal = rearrange(volumes, "c x y z -> x y z c")
        packed = minimum_norm(signal, b, g).clamp(-LARGEST_MM2_PER_S, LARGEST_MM2_PER_S)
        tensors.append(rearrange(packed, "x y z d -> d x y z") / scales)
        adc = apparent_diffusion(signal, b).clamp(-LARGEST_MM2_PER_S, LARGEST_MM2_PER_S)
        adcs.append(rearrange(adc, "x y z c -> c x y z") / scales[DIAGONAL[0]])
    inside = rearrange(mask, "b x y z -> b 1 x y z")
    return torch.stack(tensors).to(dwi) * inside, torch.stack(adcs).to(dwi) * inside
