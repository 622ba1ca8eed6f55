"""A running average of the weights: what a stage hands on, and what is validated.

Parameters and floating-point buffers are averaged alike: the codebook moves with the encoder, and an old encoder
beside a new codebook would quantise wrongly. Whole numbers are copied.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tensorldm.config.training import AverageConfig


class Average:
    """The average of a module's state, kept beside it in float32."""

    def __init__(self, module: nn.Module, settings: AverageConfig) -> None:
        self.module = module
        self.settings = settings
        self.values = {name: _wide(value) for name, value in module.state_dict().items()}

    def decay(self, step: int) -> float:
        """Share of the old average that is kept at a step (the first is 0).

        Early on the memory is a tenth of the steps so far, so that a short run's average is not its first weights.
        """
        if not self.settings.warmup:
            return self.settings.decay
        return min(self.settings.decay, (1 + step) / (10 + step))

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the module's weights after a step."""
        mine, theirs = self._moving()
        torch._foreach_lerp_(mine, [value.float() for value in theirs], 1 - self.decay(step))
        for name, value in self.module.named_buffers():
            if name in self.values and not value.is_floating_point():
                self.values[name].copy_(value)

    def _moving(self) -> tuple[list[Tensor], list[Tensor]]:
        """Averages and values of what can change: a frozen weight is its own average, and most are frozen."""
        names = [name for name, parameter in self.module.named_parameters() if parameter.requires_grad]
        names += [
            name for name, value in self.module.named_buffers() if name in self.values and value.is_floating_point()
        ]
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return [self.values[name] for name in names], [state[name].detach() for name in names]

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
