"""What a trained model holds inside, subject by subject: autoencoded references, experts' shares, probed features.

Axes: v voxel of the mask, p channel of a representation.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tensorldm.batch import Batch
from tensorldm.build import build_scaling
from tensorldm.bundle import BundleInfo
from tensorldm.dti.maps import fractional_anisotropy
from tensorldm.evaluation.measures import COMPONENT_NAMES
from tensorldm.experiments.linear_probe import Moments, moments
from tensorldm.model import TensorLDM
from tensorldm.networks.conditioner import ScanFeatures
from tensorldm.shapes import Components

VOLUME_NAMES: Final = ("b0", "x", "y", "z")
ENTROPY: Final = "entropy_nats"
FEATURES, LATENTS = "features", "latents"
VOXEL, CELL = "r2_voxel", "r2_cell"
"""Each voxel's FA; or the mean FA of a latent's cell, where features and latents have the same resolution."""


@dataclass(frozen=True, eq=False)
class Opened:
    """A loaded model, and one subject on its device."""

    model: TensorLDM
    info: BundleInfo
    batch: Batch

    @cached_property
    def features(self) -> ScanFeatures:
        """What the model reads from the DWIs."""
        batch = self.batch
        return self.model.read(**batch.scan).features

    @cached_property
    def latents(self) -> Float[Tensor, "b 6 f x y z"]:
        """Of the reference tensor, before quantisation, as they are diffused."""
        with torch.inference_mode():
            return self.model.encode(build_scaling(self.info.model).scale(self.batch.components), self.features)


def autoencode(opened: Opened) -> Components:
    """The reference through encoder and decoder, mm²/s: the best that any sampler could reach. [choice: curriculum]"""
    x, y, z = opened.batch.mask.shape[1:]
    with torch.inference_mode():
        decoded = opened.model.decode(opened.latents, opened.features, size=(x, y, z))
        return build_scaling(opened.info.model).unscale(decoded.float()) * opened.batch.mask[:, None]


def routing(opened: Opened) -> dict[tuple[str, str], float]:
    """Share of each DWI volume in each component's condition, and its entropy, by component and metric."""
    with torch.inference_mode():
        gates = opened.model.gates(opened.features)[0].double().cpu()
    entropy = -(gates * gates.clamp(min=1e-300).log()).sum(dim=-1)
    found = {}
    for d, component in enumerate(COMPONENT_NAMES):
        for c, volume in enumerate(VOLUME_NAMES):
            found[component, f"weight_{volume}"] = float(gates[d, c])
        found[component, ENTROPY] = float(entropy[d])
    return found


def probe_moments(opened: Opened) -> dict[tuple[str, str], Moments]:
    """The sums that a linear probe of FA needs, by representation and by what it is to predict."""
    mask = opened.batch.mask[0]
    packed = rearrange(opened.batch.components[0], "d x y z -> x y z d")
    fa = torch.where(mask, fractional_anisotropy(packed.double()), 0.0)
    size = opened.model.compression
    cells, cell_fa = _cell_means(fa, mask, size)
    latents = rearrange(opened.latents[0], "d f x y z -> x y z (d f)")
    levels = [rearrange(level[0, 0], "f x y z -> x y z f") for level in opened.features.fused]
    voxels = mask.nonzero()
    sizes = [size // 2**above for above in reversed(range(len(levels)))]  # the last level is as coarse as the latents
    fine = torch.cat([_looked_up(level, voxels, each) for level, each in zip(levels, sizes, strict=True)], dim=1)
    return {
        (FEATURES, VOXEL): moments(fine, fa[mask]),
        (LATENTS, VOXEL): moments(_looked_up(latents, voxels, size), fa[mask]),
        (FEATURES, CELL): moments(_looked_up(levels[-1], cells, 1), cell_fa),
        (LATENTS, CELL): moments(_looked_up(latents, cells, 1), cell_fa),
    }


def _looked_up(grid: Float[Tensor, "x y z p"], places: Tensor, size: int) -> Float[Tensor, "v p"]:
    """What a coarser grid says at these voxels."""
    i, j, k = (places // size).unbind(dim=1)
    return grid[i, j, k]


def _cell_means(fa: Float[Tensor, "x y z"], mask: Tensor, size: int) -> tuple[Tensor, Float[Tensor, " n"]]:
    """Cells of the latents' grid that the brain reaches, and the mean FA of the brain in each."""
    x, y, z = (-(-side // size) for side in mask.shape)
    i, j, k = (mask.nonzero() // size).unbind(dim=1)
    total, count = torch.zeros(x, y, z, dtype=fa.dtype, device=fa.device), torch.zeros(x, y, z, device=fa.device)
    total.index_put_((i, j, k), fa[mask], accumulate=True)
    count.index_put_((i, j, k), torch.ones_like(fa[mask]).to(count), accumulate=True)
    reached = count > 0
    return reached.nonzero(), total[reached] / count[reached]
