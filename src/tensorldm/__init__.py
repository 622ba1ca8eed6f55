"""TensorLDM: a full diffusion tensor from four diffusion-weighted volumes."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorldm.reconstruct.api import reconstruct as reconstruct

try:
    __version__ = version("tensorldm")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Load what is called by its name when it is called for: importing the package stays cheap."""
    if name == "reconstruct":
        return import_module("tensorldm.reconstruct")
    raise AttributeError(f"module 'tensorldm' has no attribute '{name}'")
