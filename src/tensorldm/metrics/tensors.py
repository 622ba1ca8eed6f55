"""Agreement of two tensor fields inside a mask: LEM [E11], SPD violations, angle of the principal direction.

Tensors are packed (xx yy zz xy xz yz), mm²/s, in one common frame. Each measure takes the reference first.
"""

from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.components import OFF_DIAGONAL
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.logarithm import log, log_euclidean_distance
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, principal_direction
from tensorldm.metrics.ranges import LEM_FLOOR_MM2_PER_S, NEGATIVE_EIGENVALUE_MM2_PER_S, V1_MIN_FA
from tensorldm.shapes import Packed


def lem(
    reference: Packed, prediction: Packed, mask: Bool[Tensor, "*voxels"], *, floor: float = LEM_FLOOR_MM2_PER_S
) -> Float[Tensor, ""]:
    """Mean Log-Euclidean distance over the mask [E11]; eigenvalues below the floor count as the floor."""
    return log_euclidean_distance(reference[mask], prediction[mask], floor=floor).mean()


def off_diagonal_lem(
    reference: Packed, prediction: Packed, mask: Bool[Tensor, "*voxels"], *, floor: float = LEM_FLOOR_MM2_PER_S
) -> Float[Tensor, ""]:
    """Mean over the mask of the Frobenius norm of the off-diagonal entries of Log(prediction) - Log(reference).

    Each of the three components stands twice in the matrix and counts twice. [choice: off-diagonal-lem]
    """
    difference = log(prediction[mask], floor=floor) - log(reference[mask], floor=floor)
    return (2 * difference[..., list(OFF_DIAGONAL)].square().sum(dim=-1)).sqrt().mean()


def spd_violation_rate(prediction: Packed, mask: Bool[Tensor, "*voxels"]) -> Float[Tensor, ""]:
    """Per cent of mask voxels whose raw tensor has a negative eigenvalue."""
    smallest = eigenvalues(prediction[mask])[..., -1]
    return 100 * (smallest < NEGATIVE_EIGENVALUE_MM2_PER_S).to(smallest.dtype).mean()


def v1_angles(reference: Packed, prediction: Packed, mask: Bool[Tensor, "*voxels"]) -> Float[Tensor, " voxels"]:
    """Angles in degrees (0 to 90) between the principal directions, where the reference is clearly anisotropic."""
    reference, prediction = reference[mask], prediction[mask]
    clear = fractional_anisotropy(reference) > V1_MIN_FA
    return angle_degrees(principal_direction(reference[clear]), principal_direction(prediction[clear]))
