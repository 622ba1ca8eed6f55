"""Two small heads of known tensors, measured without noise along directions that are tilted off the axes."""

import pytest
import torch
from einops import rearrange

from tensorldm.batch import Batch, mask_centre
from tensorldm.dti.signal import predict_signal

SIDE = 16


def make_batch(number: int = 2, *, side: int = SIDE) -> Batch:
    random = torch.Generator().manual_seed(3)
    place = torch.stack(torch.meshgrid(*(torch.linspace(-1, 1, side),) * 3, indexing="ij"), dim=-1)
    mask = place.square().sum(-1) < 0.85
    tensors, signals, tables = [], [], []
    for _ in range(number):
        turn = torch.linalg.qr(torch.randn(3, 3, generator=random))[0]
        fibre = torch.linalg.cross(turn[0].expand_as(place), place) + 0.3 * turn[1]
        fibre = fibre / fibre.norm(dim=-1, keepdim=True)
        matrix = 0.4e-3 * torch.eye(3) + 1.2e-3 * fibre[..., :, None] * fibre[..., None, :]
        packed = torch.stack([matrix[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))], dim=-1)
        directions = torch.eye(3) + 0.15 * torch.randn(3, 3, generator=random)
        directions = torch.cat([torch.zeros(1, 3), directions / directions.norm(dim=1, keepdim=True)])
        bvals = torch.tensor([0.0, 1000.0, 1000.0, 1000.0])
        s0 = 1 + 0.2 * place[..., 2]
        signals.append(rearrange(predict_signal(packed, s0, bvals, directions), "x y z c -> c x y z"))
        tensors.append(rearrange(packed, "x y z d -> d x y z"))
        tables.append(directions)
    masks = mask.expand(number, -1, -1, -1).contiguous()
    components = torch.stack(tensors) * masks[:, None]
    return Batch(
        dwi=torch.stack(signals) * masks[:, None],
        bvals=torch.tensor([[0.0, 1000.0, 1000.0, 1000.0]]).repeat(number, 1),
        directions=torch.stack(tables),
        components=components,
        clean=components,
        mask=masks,
        voxel_size=torch.full((number, 3), 2.0),
        centre=mask_centre(masks),
        subjects=tuple(f"head{i}" for i in range(number)),
    )


@pytest.fixture
def heads() -> Batch:
    return make_batch()


@pytest.fixture
def one_head() -> Batch:
    return make_batch(1)
