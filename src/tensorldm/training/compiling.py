"""torch.compile where it pays: block by block, and the expectation, which has plain shapes, as one.

The blocks hold nearly all of the work and are few kinds of code, so that compiling takes a minute; the objective as a
whole (fits, logarithms, windows of several sizes) takes many and gains little more. Names of weights do not change.
"""

import torch
from torch import nn

from tensorldm.networks.attention import SwinBlock
from tensorldm.networks.compiling import compile_static, trace_einops_whole
from tensorldm.networks.conditioner import Conditioner
from tensorldm.networks.expectation import Expectation
from tensorldm.networks.experts import Experts
from tensorldm.networks.film import ResidualBlock
from tensorldm.training.objectives import ExpectationObjective, log_distance

MOST_VARIANTS = 128
"""Each level's width and grid is a variant of the same code; beyond the limit it would silently run uncompiled."""


def compile_objective(objective: nn.Module) -> None:
    """Compile the logarithms of Stage 0's loss: hundreds of small operations become a few."""
    if isinstance(objective, ExpectationObjective):
        objective.distance = compile_static(log_distance)


def compile_blocks(model: nn.Module, backend: str = "inductor") -> None:
    """Compile every residual and attention block in place.

    Shapes are fixed, except where the DWI volumes lie side by side: their number changes from batch to batch, and a
    variant for each would take longer to compile than a stage lasts.
    """
    trace_einops_whole()
    torch._dynamo.config.recompile_limit = MOST_VARIANTS
    for module in model.modules():
        if isinstance(module, Expectation):
            module.compile_whole()
    whole = _parts_of(model, Expectation)
    by_volume = _parts_of(model, Conditioner, Experts)
    for module in model.modules():
        if isinstance(module, ResidualBlock | SwinBlock) and module not in whole:
            module.compile(backend=backend, dynamic=None if module in by_volume else False)


def _parts_of(model: nn.Module, *kinds: type[nn.Module]) -> set[nn.Module]:
    return {part for module in model.modules() if isinstance(module, kinds) for part in module.modules()}
