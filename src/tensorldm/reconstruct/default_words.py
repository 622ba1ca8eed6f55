"""The model that reconstructs where none is named, in words: where it comes from, which it is, what it has learned."""

import os

from rich.markup import escape

from tensorldm.bundle import BundleInfo, read_info
from tensorldm.bundle_files import IntervalFactors, check_weights
from tensorldm.errors import TensorldmError
from tensorldm.reconstruct.choice import DEFAULT_METHOD, MODEL_VARIABLE, choose

HASH_LETTERS = 12
"""Of the weights' SHA-256, which a tensor's sidecar holds whole."""


def describe_default() -> str:
    """A cell of the doctor's table; a damaged model is told as ``reconstruct`` would refuse it."""
    try:
        folder = choose().folder
        if folder is None:
            return f"[yellow]none ({_why_none()}): the closed form {DEFAULT_METHOD}[/yellow]"
        info = read_info(folder)
        check_weights(folder, info)
    except TensorldmError as error:
        return f"[red]{escape(str(error))}[/red]"
    source = f"{MODEL_VARIABLE}, {folder}" if os.environ.get(MODEL_VARIABLE) else "shipped"
    return escape(f"{info.card.title} ({source}), {_describe(info)}")


def _why_none() -> str:
    return f"{MODEL_VARIABLE} is none" if os.environ.get(MODEL_VARIABLE) else "none ships with this installation"


def _describe(info: BundleInfo) -> str:
    stages = ", ".join(str(stage) for stage in info.card.stages) or "not said"
    fitted = info.intervals.source != IntervalFactors().source
    intervals = f"calibrated ({info.intervals.source})" if fitted else "not calibrated"
    return (
        f"made by {info.made_by}, weights {info.weights_sha256[:HASH_LETTERS]}; stages {stages}; intervals {intervals}"
    )
