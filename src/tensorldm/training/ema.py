"""A running average of the weights: what a stage hands on, and what is validated.

Parameters and floating-point buffers are averaged alike: the codebook moves with the encoder, and an old encoder
beside a new codebook would quantise wrongly. Whole numbers are copied.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tensorldm.config.training import AverageConfig

Moving = tuple[list[Tensor], list[Tensor], list[tuple[Tensor, Tensor]]]
"""Averages, the values they follow, and pairs of whole numbers that are only copied."""


class Average:
    """The average of a module's state, kept beside it in float32."""

    def __init__(self, module: nn.Module, settings: AverageConfig) -> None:
        self.module = module
        self.settings = settings
        self.values = {name: _wide(value) for name, value in module.state_dict().items()}
        self._moving: Moving | None = None

    def decay(self, step: int) -> float:
        """Share of the old average that is kept at a step (the first is 0).

        Early on the memory is a ninth of the steps so far, so that a short run's average is not its first weights
        [choice: average-warmup].
        """
        if not self.settings.warmup:
            return self.settings.decay
        return min(self.settings.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the module's weights after a step."""
        if self._moving is None:
            self._moving = self._find_moving()
        mine, theirs, counts = self._moving
        torch._foreach_lerp_(mine, [value.float() for value in theirs], 1 - self.decay(step))
        for kept, count in counts:
            kept.copy_(count)

    def _find_moving(self) -> Moving:
        """What can change: a frozen weight is its own average, and in most stages most are frozen."""
        values: list[tuple[str, Tensor]] = [
            (name, value) for name, value in self.module.named_parameters() if value.requires_grad
        ]
        values += [(name, value) for name, value in self.module.named_buffers() if name in self.values]
        averaged = [(self.values[name], value.detach()) for name, value in values if value.is_floating_point()]
        counts = [(self.values[name], value) for name, value in values if not value.is_floating_point()]
        return [mine for mine, _ in averaged], [theirs for _, theirs in averaged], counts

    @torch.no_grad()
    def load(self, values: dict[str, Tensor]) -> None:
        """Go on from values that were saved."""
        for name, value in self.values.items():
            value.copy_(values[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module carries the averaged weights inside the block, and its own again after it."""
        own = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self.module.load_state_dict(self.values)
        try:
            yield
        finally:
            self.module.load_state_dict(own)


def _wide(value: Tensor) -> Tensor:
    value = value.detach().clone()
    return value.float() if value.is_floating_point() else value
