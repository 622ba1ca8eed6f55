"""Everything a run needs to go on bit for bit: tensors in safetensors, numbers in JSON, nothing pickled.

A checkpoint is a folder that is filled beside its name and then renamed, so that it is whole or not there. Tensors
are named by owner: ``model/NAME``, ``average/NAME``, ``optimizer/PLAYER/NAME/KEY``. There is no random state to keep:
every draw is a function of the seed and the sample's position.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.optim import Optimizer

from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_bytes, write_json

TENSORS = "state.safetensors"
NUMBERS = "state.json"
STEP_DIGITS = 8


@dataclass(frozen=True)
class Checkpoint:
    """A point of a run, in memory."""

    step: int
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]

    def owned_by(self, owner: str) -> dict[str, Tensor]:
        """The tensors under one owner's name, without it."""
        return {name.removeprefix(f"{owner}/"): t for name, t in self.tensors.items() if name.startswith(f"{owner}/")}


def write_checkpoint(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write ``folder/step-N`` whole, then delete all but the newest ``keep``."""
    final = folder / f"step-{checkpoint.step:0{STEP_DIGITS}d}"
    beside = folder / f".{final.name}.part"
    shutil.rmtree(beside, ignore_errors=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in checkpoint.tensors.items()}
    write_bytes(beside / TENSORS, save(tensors))
    write_json(beside / NUMBERS, {"step": checkpoint.step, **checkpoint.numbers})
    shutil.rmtree(final, ignore_errors=True)
    beside.replace(final)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def checkpoints(folder: Path) -> list[Path]:
    """Every whole checkpoint, oldest first; what a killed run left half-written does not count."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def read_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint, or nothing where there is none yet."""
    found = checkpoints(folder)
    return read_checkpoint(found[-1]) if found else None


def read_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint, on the CPU."""
    try:
        tensors = load_file(folder / TENSORS)
        numbers = json.loads((folder / NUMBERS).read_bytes())
        return Checkpoint(int(numbers.pop("step")), tensors, numbers)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise DataError(
            f"{folder}: the checkpoint cannot be read ({error}). Delete this folder to go on from the one before it."
        ) from error


def optimizer_tensors(optimizer: Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimiser's memory by parameter name; ``names`` are in the order of its parameter groups."""
    state = optimizer.state_dict()["state"]
    return {
        f"{names[index]}/{key}": torch.as_tensor(value)
        for index, memory in state.items()
        for key, value in memory.items()
    }


def load_optimizer_tensors(optimizer: Optimizer, names: list[str], *, tensors: dict[str, Tensor]) -> None:
    """Put the memory back; an optimiser that has not stepped yet has none."""
    positions = {name: index for index, name in enumerate(names)}
    state: dict[int, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        state.setdefault(positions[name], {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, known in optimizer.state.items():
        known.update({key: _laid_out_like(parameter, value) for key, value in known.items()})


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """In the parameter's own order in memory (channels-last, say), which a fused step asks for and no file keeps."""
    if value.shape != parameter.shape or value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)
