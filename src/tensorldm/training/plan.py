"""What a run will be like, before it is run: settings, parameters that train, memory."""

from collections.abc import Iterator, Sequence

import torch
from rich.table import Table
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from tensorldm.batch import Batch
from tensorldm.build import build_model
from tensorldm.config.reading import dump_config
from tensorldm.config.run import RunConfig
from tensorldm.config.training import Box
from tensorldm.training.stages import STAGES, attention_mode, joint_modes, set_trainable, settings_of

MIB = 2**20
FLOAT_BYTES = 4
COPIES_OF_MOVING = 3
"""Beside the weight itself: gradient and the two running means of Adam."""
PROBE_SIDES = {False: 32, True: 64}
"""Voxels a side of the volume that memory is measured on, in Phase I and II; activations grow with their number. The
U-Net works on a sixteenth of a side, where windows of a small volume would be mostly padding."""


def describe(config: RunConfig, stages: Sequence[int]) -> Iterator[str | Table]:
    """The resolved settings, then a table of the stages."""
    yield dump_config(config)
    table = Table(
        title="Stages", caption="memory: weights, average, gradients, Adam, activations; float32, bfloat16 needs less"
    )
    for title in ("stage", "data", "box", "samples/step", "steps", "parameters that train", "memory"):
        table.add_column(title)
    model = build_model(config.model, config.seed)
    total = sum(parameter.numel() for parameter in model.parameters())
    for number in stages:
        row, settings = STAGES[number], settings_of(config, number)
        moving = sum(p.numel() for p in set_trainable(model, row, config=config.model).values())
        table.add_row(
            f"{number} {row.title}",
            row.data,
            "×".join(str(side) for side in settings.box),
            f"{settings.batch_size}×{settings.accumulate}",
            f"{settings.steps:,}",
            f"{moving:,} of {total:,}",
            f"{estimate_memory(config, number) / MIB:,.0f} MiB",
        )
    yield table


def estimate_memory(config: RunConfig, stage: int) -> int:
    """Bytes at the peak of a step: measured on a small volume, then scaled by the number of voxels."""
    row, settings = STAGES[stage], settings_of(config, stage)
    model = build_model(config.model, config.seed)
    model.set_joint(
        *joint_modes(
            row, config.model, before=(attention_mode(config.model.decoder_cca) if stage > 3 else "off", "off")
        )
    )
    moving = set_trainable(model, row, config=config.model)
    side = -(-PROBE_SIDES[row.samples] // model.side_multiple) * model.side_multiple
    kept = _saved_bytes(row.objective(model, config, stage), _probe((side, side, side)))
    x, y, z = settings.box
    activations = kept * settings.batch_size * x * y * z / side**3
    weights = sum(value.numel() for value in model.state_dict().values())
    return int(activations + FLOAT_BYTES * (2 * weights + COPIES_OF_MOVING * sum(p.numel() for p in moving.values())))


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
        subjects=("probe",),
    )
