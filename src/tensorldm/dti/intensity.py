"""One number that makes scans of different receivers comparable."""

from jaxtyping import Bool, Float
from torch import Tensor


def robust_b0_scale(b0: Float[Tensor, "*space"], mask: Bool[Tensor, "*space"]) -> Float[Tensor, ""]:
    """Median b=0 signal inside the mask: what all volumes of a subject are divided by [choice: dwi-scaling].

    The median lies between white and grey matter. A high percentile would follow the brightness of CSF, which
    changes with echo time and age, and a mean would follow the bright rim of a generous mask.
    An empty mask gives 0.
    """
    inside = b0[mask]
    return inside.median() if inside.numel() else b0.new_zeros(())
