"""Signal of a tensor, Stejskal-Tanner [E1], and its log-linear design matrix.

Directions and tensor refer to the same axes. Axes: n volume.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.shapes import BVals, Directions, Packed, Scalars

B0_MAX_S_PER_MM2 = 50.0
"""[choice: b0-threshold] Scanners play out small b-values for "b=0" (1 at United Imaging, 5 at HCP); up to this a
volume counts as b=0, as in DIPY."""


def design_matrix(bvals: BVals, directions: Directions) -> Float[Tensor, "n 7"]:
    """Rows that give ln S from (xx yy zz xy xz yz, ln S0): −b·gᵢgⱼ, off-diagonals twice, then 1."""
    x, y, z = directions.unbind(-1)
    quadratic = torch.stack((x * x, y * y, z * z, 2 * x * y, 2 * x * z, 2 * y * z), dim=-1)
    return torch.cat((-bvals[:, None] * quadratic, torch.ones_like(bvals)[:, None]), dim=-1)


def predict_signal(packed: Packed, s0: Scalars, bvals: BVals, directions: Directions) -> Float[Tensor, "*voxels n"]:
    """S(g) = S0·exp(−b gᵀDg) for every voxel and volume [E1]; no noise."""
    rows = design_matrix(bvals, directions)[:, :6].to(packed)
    with torch.autocast(packed.device.type, enabled=False):  # bfloat16 would cost three digits of the exponent
        return s0.unsqueeze(-1) * (packed @ rows.mT).exp()
