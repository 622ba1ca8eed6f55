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
from tensorldm.training.ema import Average
from tensorldm.training.numbers import Logs, Numbers
from tensorldm.training.schedule import is_over, rate_factor
from tensorldm.training.streams import Stream

Parameters = dict[str, nn.Parameter]
CLOCK_STEPS = 10
"""Between two times that a device is waited for where minutes end a stage: a host runs ahead of a GPU, and what is
queued is work that is not done. Waiting in each step would leave the GPU idle between them."""


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

    def step(self, numbers: Numbers, logs: Logs, *, at: int) -> None:
        """Move the parameters, unless a number of this step is not finite: then nothing is moved.

        A fused optimiser looks at that on the device, and the host need not wait; else the run is stopped at once.
        """
        broken = numbers.take(logs, self.name, step=at)
        inner: Any = getattr(self.optimizer, "optimizer", self.optimizer)  # inside what Fabric wraps around it
        if all(group.get("fused") for group in inner.param_groups):
            inner.found_inf = broken
        else:
            numbers.check()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


@dataclass
class Progress:
    """Where a stage stands."""

    step: int = 0
    best: float | None = None
    """The best validation score so far; smaller is better."""
    seconds: float = 0.0
    """Spent in steps, not in validating and writing."""
    validation_due: bool = False
    """Somebody asked to stop while these weights were being validated."""


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
    clock_every: int = CLOCK_STEPS
    """Steps; a divisor of those after which somebody reads numbers, whose waiting would else be counted for nothing."""


Report = Callable[[int, Numbers], None]
"""Called after every step with the number of steps done and the numbers so far."""


def train(devices: Devices, stage: Stage, progress: Progress, *, after_step: Report) -> None:
    """Run a stage from where it stands to its end, or until ``after_step`` raises."""
    numbers = Numbers(stage.number)
    while not is_over(stage.settings, progress.step, seconds=progress.seconds):
        started = time.perf_counter()
        for player in stage.players:
            player.set_rates(rate_factor(progress.step, stage.settings, seconds=progress.seconds))
            logs = accumulate(devices, player, stage, progress.step)
            logs["gradient_norm"] = devices.clip_gradients(
                player.objective, player.optimizer, max_norm=stage.settings.clip, error_if_nonfinite=False
            )
            player.step(numbers, logs, at=progress.step)
        stage.average.update(progress.step)
        numbers.count(samples_per_step(devices, stage.settings))
        progress.step += 1
        progress.seconds += _seconds_since(started, devices, stage, step=progress.step)
        after_step(progress.step, numbers)
    numbers.check()


def _seconds_since(started: float, devices: Devices, stage: Stage, *, step: int) -> float:
    """The same on every process, where it decides when a stage ends."""
    settings = stage.settings
    if settings.minutes is not None and (step % stage.clock_every == 0 or step == settings.steps):
        wait_for(devices.device)
    passed = time.perf_counter() - started
    if settings.minutes is None or devices.world_size == 1:
        return passed
    return float(devices.all_reduce(torch.tensor(passed, device=devices.device), reduce_op="mean"))


def wait_for(device: torch.device) -> None:
    """Until all that was asked of a GPU is done; a CPU has done it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
