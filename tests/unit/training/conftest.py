"""A stream of tiny heads that obey Stejskal-Tanner, each a function of (seed, position)."""

from dataclasses import dataclass

import pytest
import torch
from einops import rearrange

from tensorldm.batch import Batch, mask_centre
from tensorldm.dti.signal import predict_signal
from tensorldm.rng import generator


@dataclass(frozen=True)
class TinyHeads:
    """An egg of random smooth tensors; the four volumes lie a little off the axes, as real ones do."""

    side: int = 8

    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        items = [self._item(seed, position + i) for i in range(size)]
        names = ("dwi", "bvals", "directions", "components", "mask", "voxel_size", "centre")
        joined = {name: torch.cat([item[name] for item in items]) for name in names}
        return Batch(**joined, clean=joined["components"], subjects=tuple(f"tiny{position + i}" for i in range(size)))

    def _item(self, seed: int, position: int) -> dict[str, torch.Tensor]:
        draw = generator(seed, "tiny", position)
        axis = torch.linspace(-1, 1, self.side)
        radius = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij")).square().sum(0).sqrt()
        mask = radius < 0.9
        coarse = torch.randn(1, 6, 3, 3, 3, generator=draw)
        smooth = torch.nn.functional.interpolate(coarse, size=(self.side,) * 3, mode="trilinear", align_corners=True)
        base = torch.tensor([0.8e-3] * 3 + [0.0] * 3).reshape(1, 6, 1, 1, 1)
        components = (base + 0.15e-3 * smooth) * mask
        bvals = torch.tensor([[0.0, 1000.0, 1000.0, 1000.0]])
        tilt = torch.eye(3) + 0.1 * torch.randn(3, 3, generator=draw)
        directions = torch.cat([torch.zeros(1, 3), tilt / tilt.norm(dim=1, keepdim=True)])
        packed = rearrange(components[0], "d x y z -> x y z d")
        signal = predict_signal(packed, mask.float(), bvals[0], directions)
        return {
            "dwi": rearrange(signal, "x y z c -> 1 c x y z"),
            "bvals": bvals,
            "directions": directions[None],
            "components": components,
            "mask": mask[None],
            "voxel_size": torch.full((1, 3), 2.0),
            "centre": mask_centre(mask[None]),
        }


@pytest.fixture
def heads() -> TinyHeads:
    return TinyHeads()
