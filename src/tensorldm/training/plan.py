"""What a run will be like, before it is run: settings, parameters that train, memory."""

from collections.abc import Iterator, Sequence
from math import prod

import torch
from rich.table import Table
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from tensorldm.batch import Batch
from tensorldm.config.reading import dump_config
from tensorldm.config.run import RunSettings
from tensorldm.config.training import Box, StageConfig
from tensorldm.training.method import StageWork, TrainedMethod
from tensorldm.training.paper_stage import TENSORLDM
from tensorldm.training.stages import settings_of

MIB = 2**20
FLOAT_BYTES = 4
COPIES_OF_MOVING = 3
"""Beside the weight itself: gradient and the two running means of Adam."""


def describe(config: RunSettings, stages: Sequence[int], *, method: TrainedMethod = TENSORLDM) -> Iterator[str | Table]:
    """The resolved settings, then a table of the stages."""
    yield dump_config(config)
    table = Table(
        title="Stages", caption="memory: weights, average, gradients, Adam, activations; float32, bfloat16 needs less"
    )
    for title in ("stage", "data", "box", "samples/step", "steps", "parameters that train", "memory"):
        table.add_column(title)
    for number in stages:
        work, settings = method.prepare(config, number, start=None), settings_of(config, number)
        total = sum(parameter.numel() for parameter in work.model.parameters())
        table.add_row(
            f"{number} {work.outline.title}",
            work.outline.data,
            "×".join(str(side) for side in settings.box),
            f"{settings.batch_size}×{settings.accumulate}",
            f"{settings.steps:,}",
            f"{num_moving(work):,} of {total:,}",
            f"{estimate_memory(work, settings) / MIB:,.0f} MiB",
        )
    yield table


def num_moving(work: StageWork) -> int:
    """Parameters that a stage trains."""
    return sum(parameter.numel() for part in work.parts for parameter in part.moving.values())


def estimate_memory(work: StageWork, settings: StageConfig) -> int:
    """Bytes at the peak of a step: measured on a small volume, then scaled by the number of voxels."""
    kept = max(_saved_bytes(part.objective, _probe(work.probe)) for part in work.parts)
    activations = kept * settings.batch_size * prod(settings.box) / prod(work.probe)
    weights = sum(value.numel() for value in work.model.state_dict().values())
    return int(activations + FLOAT_BYTES * (2 * weights + COPIES_OF_MOVING * num_moving(work)))


def _saved_bytes(objective: torch.nn.Module, batch: Batch) -> int:
    """Bytes that the forward pass keeps for the backward pass."""
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            storage = tensor.untyped_storage()
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        loss, _ = objective(batch, torch.zeros(1, dtype=torch.int64))
    del loss
    return sum(seen.values())


def _probe(box: Box) -> Batch:
    """A batch of one that any network here can read."""
    components = torch.zeros(1, 6, *box)
    components[:, :3] = 1e-3
    return Batch(
        dwi=torch.full((1, 4, *box), 0.5),
        bvals=torch.tensor([[0.0, 1000.0, 1000.0, 1000.0]]),
        directions=torch.cat([torch.zeros(1, 3), torch.eye(3)])[None],
        components=components,
        clean=components,
        mask=torch.ones(1, *box, dtype=torch.bool),
        voxel_size=torch.full((1, 3), 2.0),
        centre=torch.tensor([[(side - 1) / 2 for side in box]]),
        subjects=("probe",),
    )
