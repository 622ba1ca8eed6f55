"""A bundle of TensorLDM: its settings, how its parts are joined, its weights (`bundle_files` reads and writes them).

Half-precision bundles are for shipping: they leave out what only training needs (the codebooks' running sums) and
parts that no stage has trained, which are random.
"""

from functools import partial
from pathlib import Path
from typing import Final, Literal

import torch
from torch import Tensor

from tensorldm.build import build_model
from tensorldm.bundle_files import (
    INDEX,
    OURS,
    WEIGHTS,
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
from tensorldm.config.model import ModelConfig
from tensorldm.model import TensorLDM
from tensorldm.networks.attention import AttentionMode
from tensorldm.networks.expert_levels import DecoderCondition

__all__ = ["INDEX", "WEIGHTS", "BundleInfo", "Card", "IntervalFactors", "load_bundle", "read_info", "write_bundle"]

TRAINING_ONLY: Final = (".counts", ".sums", ".updates")
"""The codebooks' memory: what follows the data while they train."""


TRAINED_BY: Final = {
    "expectation": (0,),
    "autoencoder": (1, 2, 3),
    "spread": (1, 2),
    "unet": (4, 5),
    "experts": (4, 5),
    "expert_levels": (4, 5),
}
"""Stages that a part of the model learns in."""


class BundleInfo(BundleIndex):
    """What ``bundle.json`` holds."""

    method: Literal["tensorldm"] = "tensorldm"
    model: ModelConfig
    decoder_joint: AttentionMode = "off"
    unet_joint: AttentionMode = "off"

    @property
    def decoder_reads(self) -> DecoderCondition:
        """Φ_X until a stage has trained the decoders to read Φ^d."""
        return self.model.decoder_condition if _is_trained("expert_levels", self.card.stages) else "anatomy"


def write_bundle(
    folder: Path,
    weights: dict[str, Tensor],
    *,
    config: ModelConfig,
    joint: tuple[AttentionMode, AttentionMode],
    card: Card,
    precision: Precision = "float32",
    intervals: IntervalFactors | None = None,
) -> BundleInfo:
    """Write weights and index; a folder with an index is whole."""
    half: frozenset[str] = frozenset()
    if precision == "float16":
        with torch.device("meta"):
            half = frozenset(name for name, _ in build_model(config).named_parameters())
    weights = {name: value for name, value in weights.items() if _is_stored(name, precision, card.stages)}
    content, sha256 = pack_weights(weights, half=half)
    info = BundleInfo(
        model=config,
        decoder_joint=joint[0],
        unet_joint=joint[1],
        precision=precision,
        weights_sha256=sha256,
        card=card,
        intervals=intervals or IntervalFactors(),
    )
    write_files(folder, content, index=info)
    return info


def read_info(folder: Path) -> BundleInfo:
    """The index alone, checked."""
    return read_index(folder, BundleInfo, methods=(OURS,))


def load_bundle(folder: Path, device: torch.device | str = "cpu") -> tuple[TensorLDM, BundleInfo]:
    """The model, ready to reconstruct, and what is known about it."""
    info = read_info(folder)
    empty = outline(folder, info.model, partial(build_model, info.model))
    wanted = {
        name: tuple(value.shape)
        for name, value in empty.state_dict().items()
        if _is_stored(name, info.precision, info.card.stages)
    }
    weights = read_weights(folder, info, wanted=wanted)
    model = build_model(info.model)
    model.load_state_dict({**model.state_dict(), **_memory(model, weights), **weights})
    model.set_joint(info.decoder_joint, info.unet_joint)
    model.set_decoder_condition(info.decoder_reads)
    return model.to(device).eval().requires_grad_(False), info


def _is_stored(name: str, precision: Precision, stages: tuple[int, ...]) -> bool:
    """Whether a bundle holds a weight: what ships leaves out the memory of training and parts not trained yet."""
    if precision == "float32":
        return True
    return not name.endswith(TRAINING_ONLY) and _is_trained(name.partition(".")[0], stages)


def _is_trained(part: str, stages: tuple[int, ...]) -> bool:
    """Whether one of these stages trains a part; where none is named, all have been gone through."""
    return not stages or bool(set(TRAINED_BY.get(part, stages)) & set(stages))


def _memory(model: TensorLDM, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """A half-precision bundle's codebooks without their running sums: as if each code had been met once."""
    memory = {}
    for name, value in model.state_dict().items():
        codebook = weights.get(name.rpartition(".")[0] + ".codebook")
        if name.endswith(TRAINING_ONLY) and name not in weights and codebook is not None:
            memory[name] = codebook.clone() if name.endswith(".sums") else torch.ones_like(value)
    return memory
