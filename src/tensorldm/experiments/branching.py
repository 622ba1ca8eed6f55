"""One trained stage as the start of several ablations: the same weights under settings that change no weight.

A bundle holds its model's settings, and training refuses to go on with others. How components are joined and experts
mixed are switches: both forms have every weight of the other, so an ablation may branch off where they first matter.
So is what the decoders read, until a stage has trained them to: weights that one form lacks are its first ones.
"""

from pathlib import Path
from typing import Any, Final

from tensorldm import bounded
from tensorldm.build import build_model
from tensorldm.bundle import INDEX, Card, load_bundle, read_info, write_bundle
from tensorldm.config.model import ModelConfig
from tensorldm.errors import ConfigError, DataError
from tensorldm.training.paper_stage import check_form
from tensorldm.training.run import EXPECTATION

DECODERS: Final = "decoder_condition"
SWITCHES: Final = ("decoder_cca", "unet_cca", "unet.routing", DECODERS)
CARRIED: Final = "carried.json"
"""Beside a bundle that came from another machine: which weights it was made from."""


def start_for(bundle: Path, model: ModelConfig, *, folder: Path) -> Path:
    """The bundle itself where it is of this model; else the same weights under its settings, written to ``folder``."""
    info = read_info(bundle)
    if info.model == model:
        return bundle
    check_weights_fit(info.model, model, source=str(bundle))
    if info.model_copy(update={"model": model}).decoder_reads != info.decoder_reads:
        raise ConfigError(
            f"{bundle}: its decoders were trained with {DECODERS} '{info.model.decoder_condition}', so that the other "
            "form cannot go on from it. Start from a stage before the fourth."
        )
    if (folder / INDEX).is_file() and read_info(folder).model == model and _weights(folder) == info.weights_sha256:
        return folder
    known, joint = load_bundle(bundle)[0].state_dict(), (info.decoder_joint, info.unet_joint)
    weights = {name: known.get(name, first) for name, first in build_model(model).state_dict().items()}
    write_bundle(folder, weights, config=model, joint=joint, card=info.card)
    return folder


def first_part(bundle: Path, *, folder: Path) -> Path:
    """What Stage 0 of a bundle has trained, written to ``folder``: later stages begin anew from it, in any form."""
    info = read_info(bundle)
    _require_expectation(bundle, info.model)
    known = read_info(folder) if (folder / INDEX).is_file() else None
    if known is not None and known.card.stages == (EXPECTATION,) and known.model == info.model:
        return folder
    weights = load_bundle(bundle)[0].state_dict()
    write_bundle(folder, weights, config=info.model, joint=("off", "off"), card=_first_card(info.card))
    return folder


def check_first_part(bundle: Path, model: ModelConfig) -> None:
    """What Stage 0 of a bundle has trained fits a model; nothing is written."""
    info = read_info(bundle)
    check_form(bundle, info.model_copy(update={"card": _first_card(info.card)}), model)
    _require_expectation(bundle, info.model)


def trained_hash(bundle: Path) -> str:
    """The hash of a bundle's weights as they were trained, in whatever precision they lie there now."""
    carried = bundle.parent / CARRIED
    path = carried if carried.is_file() else bundle / INDEX
    try:
        return str(bounded.read_json(path)["weights_sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: the weights' hash cannot be read ({error!r}). Get the bundle again.") from error


def check_weights_fit(before: ModelConfig, after: ModelConfig, *, source: str) -> None:
    """Both models have the same weights: they differ in switches alone."""
    differing = _differences(before.model_dump(mode="json"), after.model_dump(mode="json"))
    hard = [name for name in differing if name not in SWITCHES]
    if hard:
        raise ConfigError(
            f"{source}: a model with another '{hard[0]}' than the run that starts from it, so that its weights do not "
            "fit. Start from another run, or train all stages."
        )


def _require_expectation(bundle: Path, model: ModelConfig) -> None:
    if model.expectation is None:
        raise ConfigError(f"{bundle}: its model has no Stage 0 to start from. Start from another run, or afresh.")


def _first_card(card: Card) -> Card:
    return card.model_copy(update={"stages": (EXPECTATION,), "measures": {}})


def _weights(folder: Path) -> str:
    return read_info(folder).weights_sha256


def _differences(first: dict[str, Any], second: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the settings that differ."""
    found = []
    for name in sorted({*first, *second}):
        a, b = first.get(name), second.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            found += _differences(a, b, f"{prefix}{name}.")
        elif a != b:
            found.append(prefix + name)
    return found
