"""Which method reconstructs, rivals included: settled cheaply from names and a bundle's index, loaded late."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from tensorldm.baselines.learned.bundles import read_rival_info
from tensorldm.baselines.learned.catalogue import RIVALS
from tensorldm.baselines.learned.engine import load_rival_engine, rival_traits
from tensorldm.bundle_files import OURS, read_method
from tensorldm.errors import ConfigError
from tensorldm.reconstruct import choice
from tensorldm.reconstruct.analytic_engine import FORMULAS
from tensorldm.reconstruct.choice import Choice
from tensorldm.reconstruct.engine import Engine, Traits
from tensorldm.reconstruct.settings import Settings

METHODS = (OURS, *FORMULAS, *RIVALS)
"""Every name that ``--method`` may have."""


@dataclass(frozen=True)
class RivalChoice(Choice):
    """A rival's bundle that has not been loaded."""

    @cached_property
    def traits(self) -> Traits:
        """What it is, from its index."""
        assert self.folder is not None, "a rival is a bundle"
        return rival_traits(read_rival_info(self.folder).method)

    @property
    def identity(self) -> str:
        """The weights' hash."""
        assert self.folder is not None, "a rival is a bundle"
        return read_rival_info(self.folder).weights_sha256

    def load(self, settings: Settings, *, device: torch.device) -> Engine:
        """Ready to work."""
        assert self.folder is not None, "a rival is a bundle"
        return load_rival_engine(self.folder, device=device, settings=settings)


def choose(*, model: Path | None = None, method: str | None = None) -> Choice:
    """The bundle or method that was asked for. A bundle knows its method; naming it beside is a check."""
    if method is not None and method not in METHODS:
        raise ConfigError(f"--method is '{method}'; give one of {', '.join(METHODS)}.")
    if model is None:
        if method in RIVALS:
            raise ConfigError(
                f"--method {method} is learned: name its bundle with --model. "
                f"'tensorldm train --method {method}' makes one."
            )
        return choice.choose(method=None if method == OURS else method)
    found = read_method(model)
    if method is not None and method != found:
        raise ConfigError(f"--method {method}, but --model {model} is a bundle of '{found}'. Give one of the two.")
    if found in RIVALS:
        return RivalChoice(model, None)
    return choice.choose(model=model)
