"""A model folder: weights, settings and a card, hashed and versioned, with nothing pickled.

    bundle.json            format, version, the model's settings, how its parts are joined, the card, the weights' hash
    weights.safetensors    parameters (float16 or float32) and buffers (float32)

Half-precision bundles are for shipping: they leave out what only training needs (the codebooks' running sums).
"""

import hashlib
from pathlib import Path
from typing import Any, Final, Literal

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from tensorldm import __version__, bounded
from tensorldm.build import build_model
from tensorldm.config.model import ModelConfig
from tensorldm.config.reading import Strict
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_bytes, write_text
from tensorldm.model import TensorLDM
from tensorldm.networks.attention import AttentionMode

FORMAT: Final = "tensorldm-bundle"
VERSION: Final = 1
INDEX: Final = "bundle.json"
WEIGHTS: Final = "weights.safetensors"
LARGEST_SETTING: Final = 2**16
MOST_LEVELS: Final = 16
MOST_BLOCKS: Final = 64
"""Of a level. A stranger's index may ask for a billion layers, which would take for ever even without weights."""
TRAINING_ONLY: Final = (".counts", ".sums", ".updates")
"""The codebooks' memory: what follows the data while they train."""

Precision = Literal["float16", "float32"]


class Card(Strict):
    """What a person should know about a model before using it."""

    title: str = "TensorLDM"
    stages: tuple[int, ...] = ()
    """Stages that were trained, in order."""
    data: str = ""
    """What it was trained on."""
    num_anatomies: int = 0
    """Independent anatomies among the training subjects."""
    measures: dict[str, float] = Field(default_factory=dict)
    """The last validation."""
    text: str = ""


class IntervalFactors(Strict):
    """Factors on the half-widths of the intervals that samples give, fitted on anatomies held out from training."""

    fa: float = Field(default=1.0, gt=0)
    md: float = Field(default=1.0, gt=0)
    v1: float = Field(default=1.0, gt=0)
    source: str = "uncalibrated"


class BundleInfo(Strict):
    """What ``bundle.json`` holds."""

    format: Literal["tensorldm-bundle"] = FORMAT
    version: int = VERSION
    made_by: str = f"tensorldm {__version__}"
    model: ModelConfig
    decoder_joint: AttentionMode = "off"
    unet_joint: AttentionMode = "off"
    precision: Precision = "float32"
    weights_sha256: str
    card: Card = Card()
    intervals: IntervalFactors = IntervalFactors()


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
    """Write weights first and the index last: a folder with an index is whole."""
    with torch.device("meta"):
        parameters = {name for name, _ in build_model(config).named_parameters()}
    kept = {
        name: _stored(value, half=precision == "float16" and name in parameters)
        for name, value in weights.items()
        if precision == "float32" or not name.endswith(TRAINING_ONLY)
    }
    content = save(kept)
    info = BundleInfo(
        model=config,
        decoder_joint=joint[0],
        unet_joint=joint[1],
        precision=precision,
        weights_sha256=hashlib.sha256(content).hexdigest(),
        card=card,
        intervals=intervals or IntervalFactors(),
    )
    (folder / INDEX).unlink(missing_ok=True)
    write_bytes(folder / WEIGHTS, content)
    write_text(folder / INDEX, info.model_dump_json(indent=2) + "\n")
    return info


def read_info(folder: Path) -> BundleInfo:
    """The index alone, checked."""
    path = folder / INDEX
    try:
        values = bounded.read_json(path)
    except OSError as error:
        raise DataError(f"{path}: no model there ({error.strerror}). Give the folder of a bundle.") from error
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({error}). Get the bundle again.") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise DataError(f"{path}: not the index of a model bundle. Give a folder that 'tensorldm train' made.")
    if values.get("version") != VERSION:
        raise DataError(
            f"{path}: a bundle of version {values.get('version')}, this program reads version {VERSION}. "
            f"Use the program it was made with ({values.get('made_by', 'unknown')}), or get a newer bundle."
        )
    try:
        return BundleInfo.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path}: damaged at '{where}' ({first['msg']}). Get the bundle again.") from error


def load_bundle(folder: Path, device: torch.device | str = "cpu") -> tuple[TensorLDM, BundleInfo]:
    """The model, ready to reconstruct, and what is known about it."""
    info = read_info(folder)
    outline = _outline(folder / INDEX, info.model)
    weights = _read_weights(folder / WEIGHTS, info)
    _check_names(folder / WEIGHTS, weights, model=outline, info=info)
    model = build_model(info.model)
    model.load_state_dict({**_memory(model, weights), **weights})
    model.set_joint(info.decoder_joint, info.unet_joint)
    return model.to(device).eval().requires_grad_(False), info


def _outline(path: Path, config: ModelConfig) -> TensorLDM:
    """The model without memory for its weights: what the file must hold before any is asked for."""
    _refuse_giants(path, config.model_dump(mode="json"))
    try:
        with torch.device("meta"):
            return build_model(config)
    except (ValueError, RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: settings of which no model can be built ({reason}). Get the bundle again.") from error


def _refuse_giants(path: Path, value: Any, name: str = "model") -> None:
    """Every number and every list in a model's settings is of a size that somebody might train."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _refuse_giants(path, inner, f"{name}.{key}")
    elif isinstance(value, list):
        _refuse_above(path, f"the length of '{name}'", len(value), limit=MOST_LEVELS)
        for inner in value:
            _refuse_giants(path, inner, name)
    elif isinstance(value, int | float):
        _refuse_above(path, f"'{name}'", value, limit=MOST_BLOCKS if name.endswith("blocks") else LARGEST_SETTING)


def _refuse_above(path: Path, what: str, value: float | int, *, limit: int) -> None:
    if value > limit:
        raise DataError(f"{path}: {what} is {value:g}, over the limit of {limit}. Get the bundle again.")


def _read_weights(path: Path, info: BundleInfo) -> dict[str, Tensor]:
    try:
        content = bounded.read_bytes(path, limit=bounded.machine_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: the weights cannot be read ({error}). Get the bundle again.") from error
    if hashlib.sha256(content).hexdigest() != info.weights_sha256:
        raise DataError(
            f"{path}: not the weights that {INDEX} was written with (the hash differs). Get the bundle again."
        )
    try:
        return {name: value.float() if value.is_floating_point() else value for name, value in load(content).items()}
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file ({error}). Get the bundle again.") from error


def _check_names(path: Path, weights: dict[str, Tensor], *, model: TensorLDM, info: BundleInfo) -> None:
    """Every tensor of the model, of its shape, and no other."""
    wanted: dict[str, Any] = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if info.precision == "float16":
        wanted = {name: shape for name, shape in wanted.items() if not name.endswith(TRAINING_ONLY)}
    found = {name: tuple(value.shape) for name, value in weights.items()}
    if found == wanted:
        return
    missing, unknown = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or unknown:
        what = f"'{missing[0]}' is missing" if missing else f"'{unknown[0]}' is unknown"
    else:
        name = next(name for name in wanted if wanted[name] != found[name])
        what = f"'{name}' has shape {found[name]}, not {wanted[name]}"
    raise DataError(f"{path}: {what}, so these weights are not of the model in {INDEX}. Get the bundle again.")


def _memory(model: TensorLDM, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """A half-precision bundle's codebooks without their running sums: as if each code had been met once."""
    memory = {}
    for name, value in model.state_dict().items():
        if name.endswith(TRAINING_ONLY) and name not in weights:
            codebook = weights[name.rpartition(".")[0] + ".codebook"]
            memory[name] = codebook.clone() if name.endswith(".sums") else torch.ones_like(value)
    return memory


def _stored(value: Tensor, *, half: bool) -> Tensor:
    value = value.detach().cpu().contiguous()
    if not value.is_floating_point():
        return value
    return value.half() if half else value.float()
