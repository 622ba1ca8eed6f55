"""A loss recorded once on a GPU, forwards and backwards, and replayed: its thousands of kernels are started as one.

Small networks on small volumes leave a GPU waiting for the host, which starts kernel by kernel. A recording serves
tensors of one form (a scan with another number of volumes gets its own), and needs seconds where compiling needs a
minute. What is recorded may not ask the host for anything, so an objective comes in parts: ``gather`` looks at the
batch, draws and copies; ``evaluate`` computes with what lies on the device alone; ``finish`` does what is left.
"""

import gc
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from tensorldm.batch import Batch

Logs = dict[str, Tensor]
Gathered = tuple[Tensor | dict[str, Tensor], ...]
Form = tuple[tuple[tuple[int, ...], tuple[int, ...], torch.dtype], ...]


class Evaluated(NamedTuple):
    """What the second part gives. Of a recording it lies where the next replay writes, so use it before that."""

    loss: Tensor
    logs: Logs
    """Numbers, without gradients."""
    kept: tuple[Tensor, ...] = ()
    """For ``finish``, without gradients."""


Evaluate = Callable[..., Evaluated]


class Recordable(nn.Module):
    """An objective whose middle part can be recorded."""

    draws: ClassVar[bool] = False
    """Whether the loss of a head depends on something drawn for it, and not on the head alone."""

    def __init__(self) -> None:
        super().__init__()
        self.recorder: Evaluate | None = None

    def gather(self, batch: Batch, positions: Tensor) -> Gathered:
        """All that ``evaluate`` needs of a batch, on the model's device."""
        raise NotImplementedError

    def evaluate(self, *gathered: Any) -> Evaluated:
        """The loss and what is logged; nothing here asks the host."""
        raise NotImplementedError

    def finish(self, positions: Tensor, *kept: Tensor) -> None:
        """Whatever else follows from these samples in training."""

    def forward(self, batch: Batch, positions: Tensor) -> tuple[Tensor, Logs]:
        """Loss of a batch, and what is logged."""
        loss, logs, kept = self.replay(*self.gather(batch, positions))
        if self.training:
            self.finish(positions, *kept)
        return loss, logs

    def replay(self, *gathered: Any) -> Evaluated:
        """The second part, from its recording where there is one and gradients are wanted."""
        recorded = self.recorder is not None and torch.is_grad_enabled()
        return self.recorder(*gathered) if recorded and self.recorder else self.evaluate(*gathered)


class Recorder:
    """Called like the ``evaluate`` that it records, one recording for each form of what is gathered."""

    def __init__(self, objective: Recordable) -> None:
        self.objective = objective
        self._memory = torch.cuda.graph_pool_handle()
        self._recordings: dict[Form, Evaluate] = {}

    def __call__(self, *gathered: Any) -> Evaluated:
        """As ``evaluate``; torch thinks that all it gives has gradients, and only the loss shall have them."""
        form = form_of(gathered)
        if form not in self._recordings:
            self._recordings[form] = self._record(gathered)
        loss, logs, kept = self._recordings[form](*gathered)
        return Evaluated(
            loss, {name: log.detach() for name, log in logs.items()}, tuple(each.detach() for each in kept)
        )

    def _record(self, gathered: Gathered) -> Evaluate:
        """In places of the recording's own, which every replay reads; counts and codebooks end as they began."""
        places = tuple(_copied(each) for each in gathered)
        buffers = [(buffer, buffer.clone()) for buffer in self.objective.buffers()]
        middle = _Middle(self.objective)
        # Gradients are worked out after autocast, as in any other step: inside it, products of a loss that asked for
        # full precision would be rounded on the way back.
        with torch.autocast("cuda", enabled=False):
            recording: Any = torch.cuda.make_graphed_callables(
                middle,
                places,  # type: ignore[arg-type]  # it takes trees of tensors too
                allow_unused_input=True,
                pool=self._memory,
            )
        for buffer, before in buffers:
            buffer.copy_(before)
        evaluate: Evaluate = recording
        return evaluate


class _Middle(nn.Module):
    """The second part as a module: torch turns a module into its recording, and finds what learns among its weights.

    It is computed in the precision that is in force where this is made.
    """

    def __init__(self, objective: Recordable) -> None:
        super().__init__()
        self.objective = objective
        self.mixed, self.precision = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

    def forward(self, *gathered: Any) -> Evaluated:
        """The function itself, not the recording of another form."""
        # Autocast drops the weights it has cast at the end of its context; the recording would then read freed memory.
        with torch.autocast("cuda", self.precision, enabled=self.mixed, cache_enabled=False):
            return self.objective.evaluate(*gathered)


def record(objective: nn.Module) -> bool:
    """Record an objective's middle part from its next call on; whether it has one."""
    if not isinstance(objective, Recordable):
        return False
    objective.recorder = Recorder(objective)
    return True


def forget(objectives: Iterable[nn.Module]) -> None:
    """Give back the memory of all recordings, which is a step's own.

    A recording and what it was made of refer to each other, so that Python would find them when it happens to look.
    """
    recorded = [each for each in objectives if isinstance(each, Recordable) and each.recorder is not None]
    for objective in recorded:
        objective.recorder = None
    if recorded:
        gc.collect()


def form_of(gathered: Gathered) -> Form:
    """What a recording is made for: number, sizes, order in memory and type of the tensors."""
    tensors = [each for group in gathered for each in (group.values() if isinstance(group, dict) else (group,))]
    return tuple((tuple(each.shape), each.stride(), each.dtype) for each in tensors)


def _copied(group: Tensor | dict[str, Tensor]) -> Tensor | dict[str, Tensor]:
    if isinstance(group, Tensor):
        return group.detach().clone()
    return {name: each.detach().clone() for name, each in group.items()}
