"""TensorLDM: a full diffusion tensor from four diffusion-weighted volumes."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tensorldm")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"
