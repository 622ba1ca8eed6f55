"""How tensors turn when the tissue that they describe is moved.

A deformation's Jacobian J takes small steps from the new head to the old, so tissue is carried by F = J⁻¹.
Finite strain turns a tensor by the rotation in F. Preservation of the principal direction (PPD) sends the first
eigenvector along F e1, which keeps tensors tangent to the warped fibres under shear too. Neither changes eigenvalues.
Axes: k compartment, v voxel, i j matrix.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from tensorldm.cohort.settings import Reorientation
from tensorldm.components import COLUMNS, ROWS
from tensorldm.dti.eigen import eigen
from tensorldm.dti.packing import rotate

Jacobians = Float[Tensor, "v 3 3"]
POLAR_ITERATIONS = 6
"""Newton's iteration doubles its digits each time; from the strains that we draw five reach float32's last one."""


def reorient(packed: Float[Tensor, "k v 6"], jacobian: Jacobians, *, how: Reorientation) -> Float[Tensor, "k v 6"]:
    """Tensors of the old head, sampled at each voxel of the new one, turned into the new head."""
    if how == "finite-strain":
        return rotate(packed, rotation_part(jacobian).mT.expand(*packed.shape[:2], 3, 3))
    return _preserve_principal_direction(packed, jacobian)


def carry(directions: Float[Tensor, "*k v 3"], jacobian: Jacobians) -> Float[Tensor, "*k v 3"]:
    """Fibre directions of the old head carried into the new one, as unit vectors."""
    return normalize(_apply(_adjugate(jacobian), directions), dim=-1, eps=1e-20)


def rotation_part(jacobian: Jacobians) -> Jacobians:
    """The rotation R of the polar decomposition J = R U, by Newton's iteration X ← (X + X⁻ᵀ)/2."""
    current = jacobian / determinant(jacobian).abs().pow(1 / 3)[:, None, None]
    for _ in range(POLAR_ITERATIONS):
        current = (current + _adjugate(current).mT / determinant(current)[:, None, None]) / 2
    return current


def determinant(jacobian: Jacobians) -> Float[Tensor, " v"]:
    """Change of volume from the new head to the old; above 0 wherever the map is invertible."""
    first, second, third = jacobian.unbind(dim=-2)
    volume: Tensor = (first * torch.linalg.cross(second, third)).sum(dim=-1)
    return volume


def _adjugate(matrix: Jacobians) -> Jacobians:
    """The inverse times the determinant, without division."""
    first, second, third = matrix.unbind(dim=-2)
    cross = torch.linalg.cross
    return torch.stack([cross(second, third), cross(third, first), cross(first, second)], dim=-1)


def _preserve_principal_direction(packed: Float[Tensor, "k v 6"], jacobian: Jacobians) -> Float[Tensor, "k v 6"]:
    """PPD: e1 goes along F e1, e2 into the plane that F e1 and F e2 span, e3 across both."""
    values, vectors = eigen(packed)
    forward = _adjugate(jacobian)
    first = normalize(_apply(forward, vectors[..., 0]), dim=-1, eps=1e-20)
    second = _apply(forward, vectors[..., 1])
    second = normalize(second - (first * second).sum(dim=-1, keepdim=True) * first, dim=-1, eps=1e-20)
    # I - e1 e1ᵀ - e2 e2ᵀ stands for e3 e3ᵀ, so D = λ3 I + (λ1 - λ3) e1 e1ᵀ + (λ2 - λ3) e2 e2ᵀ.
    over_third = values[..., :2] - values[..., 2:]
    identity = packed.new_tensor([float(i == j) for i, j in zip(ROWS, COLUMNS, strict=True)])
    return values[..., 2:] * identity + over_third[..., :1] * _dyad(first) + over_third[..., 1:] * _dyad(second)


def _dyad(vectors: Float[Tensor, "*k v 3"]) -> Float[Tensor, "*k v 6"]:
    return vectors[..., list(ROWS)] * vectors[..., list(COLUMNS)]


def _apply(matrices: Jacobians, vectors: Float[Tensor, "*k v 3"]) -> Float[Tensor, "*k v 3"]:
    return (matrices * vectors[..., None, :]).sum(dim=-1)
