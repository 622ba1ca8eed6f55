"""Which method reconstructs, and where: settled cheaply, loaded late."""

import os
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal

import torch

from tensorldm.bundle import INDEX, read_info
from tensorldm.errors import ConfigError
from tensorldm.reconstruct.analytic_engine import FORMULAS, AnalyticEngine, analytic_traits
from tensorldm.reconstruct.engine import Engine, Traits
from tensorldm.reconstruct.model_engine import load_model, model_traits
from tensorldm.reconstruct.settings import Settings
from tensorldm.work.processes import gpu_of_worker

DEFAULT_METHOD = "minimum-norm"
NO_MODEL = (
    "No trained model was given (--model, or the one that ships): the tensor is the minimum-norm one, which "
    "explains the four volumes and knows no anatomy. MD is sound; where fibres run oblique to the axes FA is too low "
    "and directions are wrong."
)
MODEL_VARIABLE = "TENSORLDM_MODEL"
"""A bundle's folder, for everybody on a machine; 'none' for the closed form."""
Device = Literal["auto", "cpu", "cuda", "mps"]


@dataclass(frozen=True)
class Choice:
    """A method that has not been loaded."""

    folder: Path | None
    """Of a bundle."""
    method: str | None
    """Of a closed form."""
    word: str | None = None
    """What the user should know about the choice."""

    @cached_property
    def traits(self) -> Traits:
        """What it is; a bundle's index is read for it, its weights are not."""
        if self.folder is not None:
            return model_traits(read_info(self.folder))
        assert self.method is not None, "a choice is a bundle or a method"
        return analytic_traits(self.method)

    @property
    def identity(self) -> str:
        """What decides its results: the weights' hash, or the formula's name."""
        return read_info(self.folder).weights_sha256 if self.folder is not None else self.traits.name

    def load(self, settings: Settings, *, device: torch.device) -> Engine:
        """Ready to work."""
        if self.folder is not None:
            return load_model(self.folder, device=device, settings=settings)
        return AnalyticEngine(self.traits)


def choose(*, model: Path | None = None, method: str | None = None) -> Choice:
    """The bundle or method that was asked for; else the shipped model; else the best closed form, with a word."""
    if model is not None and method is not None:
        raise ConfigError(f"--model {model} and --method {method}: give one of the two.")
    if method is not None and method not in FORMULAS:
        raise ConfigError(
            f"--method is '{method}'; give one of {', '.join(FORMULAS)}, or a trained model with --model."
        )
    if model is not None or method is not None:
        return Choice(model, method)
    default = default_model()
    if default is None:
        return Choice(None, DEFAULT_METHOD, word=NO_MODEL)
    _refuse_missing(default)
    return Choice(default, None)


def default_model() -> Path | None:
    """The bundle that a site names in its environment, else the shipped one; None where that is 'none' or missing."""
    named = os.environ.get(MODEL_VARIABLE)
    if named:
        return None if named == "none" else Path(named)
    shipped = Path(str(files("tensorldm"))) / "weights"
    return shipped if (shipped / INDEX).is_file() else None


def _refuse_missing(folder: Path) -> None:
    """Nobody typed this folder with the command: say where it comes from."""
    if not (folder / INDEX).is_file():
        raise ConfigError(
            f"{MODEL_VARIABLE} is {folder}, and no {INDEX} is in it. Name the folder of a bundle there, or 'none' for "
            "the closed form, or unset it for the shipped model."
        )


def own_gpu(device: torch.device) -> torch.device:
    """Of several GPUs the one that is this process's; other devices as they are."""
    if device != torch.device("cuda"):
        return device
    mine = torch.device("cuda", gpu_of_worker(torch.cuda.device_count()))
    torch.cuda.set_device(mine)
    return mine


def pick_device(name: str) -> torch.device:
    """The device of this name; ``auto`` takes a CUDA device where there is one."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device("cuda" if available["cuda"] else "cpu")
    if name not in available:
        raise ConfigError(f"--device is '{name}'; give one of auto, {', '.join(available)}.")
    if not available[name]:
        raise ConfigError(f"--device {name}: no such device is found here. Give --device auto or --device cpu.")
    return torch.device(name)
