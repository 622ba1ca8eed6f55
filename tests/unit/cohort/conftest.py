"""A small head whose fibres are known in closed form: helices about the z axis around a core of water."""

import pytest
import torch

from tensorldm.cohort.anatomy import Anatomy, Bundle
from tensorldm.cohort.deformation import coordinates
from tensorldm.components import COLUMNS, ROWS

PITCH_MM = 12.0
AXIAL, RADIAL, WATER = 1.7e-3, 0.3e-3, 3.0e-3


def helix_direction(positions: torch.Tensor) -> torch.Tensor:
    """Unit tangent (first axis) at positions (3 first) of the helices x = r cos θ, y = r sin θ, z = PITCH θ."""
    x, y, _ = positions
    tangent = torch.stack([-y, x, torch.full_like(x, PITCH_MM)])
    return tangent / tangent.norm(dim=0)


def make_helical_anatomy(shape=(30, 34, 32), voxel_size=(2.0, 2.0, 2.0), name="helix/0") -> Anatomy:
    positions = coordinates(shape, voxel_size, device=torch.device("cpu"))
    radius = positions.norm(dim=0)
    reach = min(n * v for n, v in zip(shape, voxel_size, strict=True)) / 2
    mask = radius < 0.85 * reach
    core = torch.sigmoid((0.2 * reach - radius) / 1.0)
    direction = helix_direction(positions)
    identity = torch.tensor([1.0, 1, 1, 0, 0, 0])[:, None, None, None]
    fibre = RADIAL * identity + (AXIAL - RADIAL) * direction[list(ROWS)] * direction[list(COLUMNS)]
    tensors = torch.stack([fibre, (WATER * identity).expand_as(fibre)])
    inside = mask.float()
    white = 1 - core
    side = positions[0] > 0
    return Anatomy(
        name=name,
        source=name,
        tensors=tensors * inside,
        fractions=torch.stack([white, core]) * inside,
        s0=(1 + 2 * core) * inside,
        tissue=torch.stack([core, torch.zeros_like(core), white]) * inside,
        mask=mask,
        voxel_size=voxel_size,
        bundles={
            "CST_right": Bundle(mask & side & (core < 0.2), direction * (mask & side & (core < 0.2))),
            "CC_7": Bundle(mask & (core < 0.2), direction * (mask & (core < 0.2))),
        },
    )


@pytest.fixture(scope="session")
def helical_anatomy() -> Anatomy:
    return make_helical_anatomy()
