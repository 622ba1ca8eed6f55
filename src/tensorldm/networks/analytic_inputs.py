"""What the DWIs say by themselves, as input channels: the minimum-norm tensor and each volume's ADC.

Axes: b batch, c DWI volume, d component (6), x y z space.
"""

from collections.abc import Sequence

import torch
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.batch import beside
from tensorldm.components import DIAGONAL
from tensorldm.dti.analytic import apparent_diffusion, minimum_norm_rule
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
    rules = torch.stack([minimum_norm_rule(b, g) for b, g in zip(bvals.cpu(), directions.cpu(), strict=True)])
    adc = apparent_diffusion(rearrange(dwi.float(), "b c x y z -> x y z b c"), bvals)
    adc = rearrange(adc, "x y z b c -> b c x y z")
    with torch.autocast(dwi.device.type, enabled=False):  # bfloat16 would cost three digits
        solved = einsum(adc, beside(rules.float(), dwi), "b c x y z, b d c -> b d x y z")
    scales = torch.tensor(component_scales, dtype=torch.float32)
    inside = rearrange(mask, "b x y z -> b 1 x y z")
    solved = solved.clamp(-LARGEST_MM2_PER_S, LARGEST_MM2_PER_S) / beside(scales, dwi)[:, None, None, None]
    adc = adc.clamp(-LARGEST_MM2_PER_S, LARGEST_MM2_PER_S) / component_scales[DIAGONAL[0]]
    return solved.to(dwi) * inside, adc.to(dwi) * inside
