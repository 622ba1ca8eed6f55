"""The training loop, the only one: for every stage, and for rivals that train several players in turn.

A stage gives players (an objective and its optimiser each); the loop gives them samples, accumulates gradients,
refuses what is not finite, steps, averages, and writes down what it was told to. It knows no stage by name.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tensorldm.batch import Batch
from tensorldm.config.training import StageConfig
from tensorldm.errors import TensorldmError
from tensorldm.training.ema import Average
from tensorldm.training.schedule import rate_factor
from tensorldm.training.streams import Stream

Logs = dict[str, Tensor]
Parameters = dict[str, nn.Parameter]


@runtime_checkable
class Devices(Protocol):
    """The part of Fabric that the loop uses."""

    global_rank: int
    world_size: int
    device: torch.device

    def backward(self, tensor: Tensor) -> None:
        """Gradients of a loss, scaled and reduced as the strategy says."""

    def no_backward_sync(self, module: Any, enabled: bool) -> AbstractContextManager[None]:
        """Gradients stay on their process inside the block."""

    def clip_gradients(self, module: Any, optimizer: Any, *, max_norm: float, error_if_nonfinite: bool) -> Tensor:
        """Shorten the gradient; the norm of before."""

    def all_reduce(self, data: Any, *, reduce_op: str) -> Any:
        """The same number on every process."""


class Envelope:
    """A batch on its way through Fabric, which takes apart what it is given and refuses frozen dataclasses."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch


class Opened(nn.Module):
    """What Fabric wraps: an objective behind an envelope."""

    def __init__(self, objective: nn.Module) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, envelope: Envelope, positions: Tensor) -> tuple[Tensor, Logs]:
        """Loss of the batch in the envelope, and what the objective wants logged."""
        loss, logs = self.objective(envelope.batch, positions)
        return loss, logs


@dataclass
class Player:
    """An objective with the parameters it moves. Most stages have one; an adversarial rival has two."""

    name: str
    objective: nn.Module
    """An ``Opened`` objective, as Fabric wrapped it."""
    parameters: Parameters
    """By name, in the order of the optimiser's groups."""
    optimizer: Optimizer
    peak_rates: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.peak_rates = self.peak_rates or [group["lr"] for group in self.optimizer.param_groups]

    def set_rates(self, factor: float) -> None:
        """This share of each group's peak rate."""
        for group, peak in zip(self.optimizer.param_groups, self.peak_rates, strict=True):
            group["lr"] = peak * factor


@dataclass
class Progress:
    """Where a stage stands."""

    step: int = 0
    best: float | None = None
    """The best validation score so far; smaller is better."""


@dataclass(frozen=True)
class Stage:
    """Everything that the loop trains with."""

    number: int
    settings: StageConfig
    model: nn.Module
    players: list[Player]
    """In the order of their turns within a step; the first one's loss is the stage's."""
    average: Average
    stream: Stream
    seed: int


Report = Callable[[int, dict[str, float]], None]
"""Called after every step with the number of steps done and the step's numbers."""


def train(devices: Devices, stage: Stage, progress: Progress, *, after_step: Report) -> None:
    """Run a stage from where it stands to its end, or until ``after_step`` raises."""
    while progress.step < stage.settings.steps:
        started = time.perf_counter()
        numbers: dict[str, float] = {}
        for player in stage.players:
            player.set_rates(rate_factor(progress.step, stage.settings))
            logs = accumulate(devices, player, stage, progress.step)
            logs["gradient_norm"] = devices.clip_gradients(
                player.objective, player.optimizer, max_norm=stage.settings.clip, error_if_nonfinite=False
            )
            numbers |= read_logs(logs, "" if player is stage.players[0] else f"{player.name}/")
            refuse_if_not_finite(numbers, stage.number, step=progress.step)
            player.optimizer.step()
            player.optimizer.zero_grad(set_to_none=True)
        stage.average.update(progress.step)
        progress.step += 1
        numbers["samples_per_second"] = samples_per_step(devices, stage.settings) / (time.perf_counter() - started)
        after_step(progress.step, numbers)


def accumulate(devices: Devices, player: Player, stage: Stage, step: int) -> Logs:
    """Gradients of one step over its micro-batches, and the mean of what they logged."""
    total: Logs = {}
    if not player.objective.training:
        player.objective.train()
    others = [other.parameters for other in stage.players if other is not player]
    with held_still(player.parameters, *others):
        for micro in range(stage.settings.accumulate):
            batch, positions = samples(devices, stage, step, micro=micro)
            last = micro == stage.settings.accumulate - 1
            with devices.no_backward_sync(player.objective, enabled=not last):
                loss, logs = player.objective(Envelope(batch), positions)
                devices.backward(loss / stage.settings.accumulate)
            for name, value in {"loss": loss.detach(), **logs}.items():
                total[name] = total.get(name, 0) + value / stage.settings.accumulate
    return {name: devices.all_reduce(value, reduce_op="mean") for name, value in total.items()}


def samples(devices: Devices, stage: Stage, step: int, *, micro: int) -> tuple[Batch, Tensor]:
    """This process's samples of a micro-batch and their positions in the stage."""
    size = stage.settings.batch_size
    together = size * devices.world_size
    first = (step * stage.settings.accumulate + micro) * together + devices.global_rank * size
    batch = stage.stream.batch(seed=stage.seed, position=first, size=size).to(devices.device)
    return batch, torch.arange(first, first + size)


def samples_per_step(devices: Devices, settings: StageConfig) -> int:
    """Samples that one optimiser step sees, over all processes."""
    return settings.batch_size * settings.accumulate * devices.world_size


@contextmanager
def held_still(own: Parameters, *others: Parameters) -> Iterator[None]:
    """No gradients for the parameters of the others inside the block, except those that are one's own too."""
    mine = {id(parameter) for parameter in own.values()}
    held = [parameter for other in others for parameter in other.values() if id(parameter) not in mine]
    for parameter in held:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in held:
            parameter.requires_grad_(True)


def read_logs(logs: Logs, prefix: str) -> dict[str, float]:
    """Numbers from the device in one transfer: a transfer each would stall the device as often."""
    values = torch.stack([value.detach().float().reshape(()) for value in logs.values()]).tolist()
    return {prefix + name: value for name, value in zip(logs, values, strict=True)}


def refuse_if_not_finite(numbers: dict[str, float], stage: int, *, step: int) -> None:
    """Stop before the optimiser takes in a loss or gradient that is no number."""
    bad = [name for name, value in numbers.items() if value != value or abs(value) == float("inf")]
    if bad:
        raise TensorldmError(
            f"Stage {stage}, step {step}: {', '.join(bad)} is not finite, so the weights were not touched. "
            f"Lower stages.{stage}.learning_rate, or go on from the last checkpoint with other data."
        )
