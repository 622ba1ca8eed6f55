"""What stands at the crosshair: tensor, eigenvalues, directions, doubts, and how far the reference is away."""

from typing import Any, Final

import torch

from tensorldm.components import COMPONENTS
from tensorldm.dti.eigen import eigen
from tensorldm.dti.maps import angle_degrees, fractional_anisotropy, mean_diffusivity
from tensorldm.viewer.field import Field
from tensorldm.viewer.layers import MICRO

World = tuple[float, float, float]
DIGITS: Final = 4


def read_out(field: Field, world: World, *, reference: Field | None) -> dict[str, Any]:
    """Numbers at a point of the world (mm), ready for JSON; diffusivities in 10⁻³ mm²/s, directions in scanner axes."""
    voxel = field.voxel_at(world)
    tensor = None if voxel is None else field.tensor_at(voxel)
    here: dict[str, Any] = {"title": field.shown.title, "key": field.shown.key, "voxel": voxel}
    if tensor is None:
        return {**here, "inside": False}
    values, vectors = eigen(tensor)
    return {
        **here,
        "inside": True,
        "tensor": {name: _round(value * MICRO) for name, value in zip(COMPONENTS, tensor.tolist(), strict=True)},
        "eigenvalues": [_round(value * MICRO) for value in values.tolist()],
        "vectors": [[_round(x) for x in vectors[:, index].tolist()] for index in range(3)],
        "fa": _round(float(fractional_anisotropy(tensor))),
        "md": _round(float(mean_diffusivity(tensor)) * MICRO),
        "angle": _angle(vectors[:, 0], world, reference),
    }


def _angle(v1: torch.Tensor, world: World, reference: Field | None) -> float | None:
    """Degrees between the principal directions here and in the reference; world axes, so the grids may differ."""
    voxel = None if reference is None else reference.voxel_at(world)
    if reference is None or voxel is None:
        return None
    theirs = reference.tensor_at(voxel)
    return None if theirs is None else round(float(angle_degrees(v1, eigen(theirs)[1][:, 0])), 1)


def _round(value: float) -> float:
    """Digits that mean something; keeps the answer short."""
    return round(value, DIGITS)
