"""Bundles of rivals: the same files as TensorLDM's, with the rival's settings; critics are left out."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from tensorldm.baselines.learned.catalogue import RIVALS, build_rival
from tensorldm.baselines.learned.config import AnyModel
from tensorldm.baselines.learned.laying import Volume
from tensorldm.baselines.learned.rival import Rival
from tensorldm.bundle_files import (
    INDEX,
    BundleIndex,
    Card,
    IntervalFactors,
    Precision,
    outline,
    pack_weights,
    read_index,
    read_weights,
    write_files,
)
from tensorldm.errors import DataError


class RivalInfo(BundleIndex):
    """What the ``bundle.json`` of a rival holds."""

    model: AnyModel
    volume: Volume | None = None
    """Sides of the volumes it was trained in, in voxels; bundles of before they were kept have none."""


def write_rival(
    folder: Path,
    weights: dict[str, Tensor],
    *,
    rival: Rival,
    config: AnyModel,
    card: Card,
    precision: Precision = "float32",
    intervals: IntervalFactors | None = None,
) -> RivalInfo:
    """Write the weights that reconstruction needs, and the index; half precision is for parameters, not for buffers."""
    kept = {name: value for name, value in weights.items() if not name.startswith(rival.training_only)}
    half = frozenset(name for name, _ in rival.named_parameters()) if precision == "float16" else frozenset[str]()
    content, sha256 = pack_weights(kept, half=half)
    info = RivalInfo(
        method=config.method,
        model=config,
        volume=rival.volume,
        precision=precision,
        weights_sha256=sha256,
        card=card,
        intervals=intervals or IntervalFactors(),
    )
    write_files(folder, content, index=info)
    return info


def read_rival_info(folder: Path) -> RivalInfo:
    """The index alone, checked."""
    return read_index(folder, RivalInfo, methods=tuple(RIVALS))


def load_rival(folder: Path, device: torch.device | str = "cpu") -> tuple[Rival, RivalInfo]:
    """The rival, ready to reconstruct, and what is known about it; its critics are as they were first drawn."""
    info = read_rival_info(folder)
    rival = restore(folder, info)
    return rival.to(device).eval().requires_grad_(False), info


def restore(folder: Path, info: RivalInfo, *, seed: int = 0) -> Rival:
    """A rival with a bundle's weights; what a bundle leaves out is drawn from the seed."""
    build = partial(build_rival, info.model, name=info.method)
    empty = outline(folder, info.model, build)
    wanted = {
        name: tuple(value.shape)
        for name, value in empty.state_dict().items()
        if not name.startswith(empty.training_only)
    }
    weights = read_weights(folder, info, wanted=wanted)
    rival = build(seed=seed)
    rival.volume = _volume(folder, info, rival)
    rival.load_state_dict({**rival.state_dict(), **weights})
    return rival


def _volume(folder: Path, info: RivalInfo, rival: Rival) -> Volume | None:
    """As recorded, if the networks can halve it as often as they do."""
    if info.volume is not None and any(side % one for side, one in zip(info.volume, rival.multiples, strict=True)):
        raise DataError(
            f"{folder / INDEX}: a volume of {list(info.volume)} voxels, where {info.method} needs multiples of "
            f"{list(rival.multiples)}. Get the bundle again."
        )
    return info.volume
