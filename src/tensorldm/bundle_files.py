"""The files of a model folder, whatever the method: an index that is checked first, and weights that are hashed.

    bundle.json            format, version, method, the model's settings, the card, the weights' hash
    weights.safetensors    parameters (float16 or float32) and buffers (float32)

Nothing is pickled, and nothing is built that the index does not ask for within bounds.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from tensorldm import __version__, bounded
from tensorldm.config.reading import Strict
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_bytes, write_json, write_text

FORMAT: Final = "tensorldm-bundle"
VERSION: Final = 1
INDEX: Final = "bundle.json"
WEIGHTS: Final = "weights.safetensors"
OURS: Final = "tensorldm"
LARGEST_SETTING: Final = 2**16
MOST_LEVELS: Final = 16
MOST_BLOCKS: Final = 64
"""Of a level. A stranger's index may ask for a billion layers, which would take for ever even without weights."""

Precision = Literal["float16", "float32"]
Shapes = dict[str, tuple[int, ...]]
Factor = Annotated[float, Field(gt=0)]
TissueFactors = tuple[Factor, Factor, Factor]


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
    fa_by_tissue: TissueFactors | None = None
    md_by_tissue: TissueFactors | None = None
    """Instead of ``fa`` and ``md``: of voxels that look like csf, grey and white."""


class BundleIndex(Strict):
    """What every ``bundle.json`` holds; a method's own schema adds its model."""

    format: Literal["tensorldm-bundle"] = FORMAT
    version: int = VERSION
    made_by: str = f"tensorldm {__version__}"
    method: str = OURS
    precision: Precision = "float32"
    weights_sha256: str
    card: Card = Card()
    intervals: IntervalFactors = IntervalFactors()


Index = TypeVar("Index", bound=BundleIndex)
Model = TypeVar("Model", bound=nn.Module)


def pack_weights(weights: dict[str, Tensor], *, half: frozenset[str] = frozenset()) -> tuple[bytes, str]:
    """The weights' file and its hash; ``half`` names those that are stored in half precision."""
    content = save({name: _stored(value, half=name in half) for name, value in weights.items()})
    return content, hashlib.sha256(content).hexdigest()


def write_files(folder: Path, content: bytes, *, index: BundleIndex) -> None:
    """Weights first and the index last: a folder with an index is whole."""
    (folder / INDEX).unlink(missing_ok=True)
    write_bytes(folder / WEIGHTS, content)
    write_text(folder / INDEX, index.model_dump_json(indent=2) + "\n")


def copy_with_intervals(folder: Path, out: Path, *, intervals: IntervalFactors) -> None:
    """The same model in another folder, with other factors in its index; weights and all else stay byte for byte."""
    values = _read_values(folder / INDEX)
    content = _read_content(folder / WEIGHTS, str(values.get("weights_sha256")))
    index = {**values, "intervals": intervals.model_dump(mode="json")}
    (out / INDEX).unlink(missing_ok=True)
    write_bytes(out / WEIGHTS, content)
    write_json(out / INDEX, index)


def read_method(folder: Path) -> str:
    """The method that a bundle is of."""
    return str(_read_values(folder / INDEX).get("method", OURS))


def read_index(folder: Path, schema: type[Index], *, methods: tuple[str, ...]) -> Index:
    """The index alone, checked; a bundle of another method than these is refused by name."""
    path = folder / INDEX
    values = _read_values(path)
    method = values.get("method", OURS)
    if method not in methods:
        raise DataError(
            f"{path}: a bundle of '{method}', where one of {' or '.join(methods)} is needed. Give another folder."
        )
    try:
        return schema.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path}: damaged at '{where}' ({first['msg']}). Get the bundle again.") from error


def outline(folder: Path, config: Strict, build: Callable[[], Model]) -> Model:
    """The model without memory for its weights: what the file must hold before any is asked for."""
    path = folder / INDEX
    _refuse_giants(path, config.model_dump(mode="json"))
    try:
        with torch.device("meta"):
            return build()
    except (ValueError, TypeError, ArithmeticError, RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: settings of which no model can be built ({reason}). Get the bundle again.") from error


def read_weights(folder: Path, index: BundleIndex, *, wanted: Shapes) -> dict[str, Tensor]:
    """The weights, hashed and of these names and shapes; numbers come as float32."""
    path = folder / WEIGHTS
    content = _read_content(path, index.weights_sha256)
    try:
        weights = {name: v.float() if v.is_floating_point() else v for name, v in load(content).items()}
    except SafetensorError as error:
        raise DataError(f"{path}: not a safetensors file ({error}). Get the bundle again.") from error
    _check_shapes(path, {name: tuple(value.shape) for name, value in weights.items()}, wanted=wanted)
    return weights


def check_weights(folder: Path, index: BundleIndex) -> None:
    """Refuse weights that are missing or are not those of the index."""
    _read_content(folder / WEIGHTS, index.weights_sha256)


def _read_content(path: Path, sha256: str) -> bytes:
    """The weights' file, if it is the one that was hashed."""
    try:
        content = bounded.read_bytes(path, limit=bounded.machine_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: the weights cannot be read ({reason}). Get the bundle again.") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(
            f"{path}: not the weights that {INDEX} was written with (the hash differs). Get the bundle again."
        )
    return content


def _read_values(path: Path) -> dict[str, Any]:
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
    return values


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


def _check_shapes(path: Path, found: Shapes, *, wanted: Shapes) -> None:
    """Every tensor of the model, of its shape, and no other."""
    if found == wanted:
        return
    missing, unknown = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing or unknown:
        what = f"'{missing[0]}' is missing" if missing else f"'{unknown[0]}' is unknown"
    else:
        name = next(name for name in wanted if wanted[name] != found[name])
        what = f"'{name}' has shape {found[name]}, not {wanted[name]}"
    raise DataError(f"{path}: {what}, so these weights are not of the model in {INDEX}. Get the bundle again.")


def _stored(value: Tensor, *, half: bool) -> Tensor:
    value = value.detach().cpu().contiguous()
    if not value.is_floating_point():
        return value
    return value.half() if half else value.float()
