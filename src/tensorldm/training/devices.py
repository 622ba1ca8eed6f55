"""Lightning Fabric, set up in one place: devices, precision, processes."""

import atexit
import os
from importlib import import_module
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from tensorldm.config.run import HardwareConfig
from tensorldm.errors import ConfigError, ToolError

Model = TypeVar("Model", bound=nn.Module)
Fabric = Any
"""Fabric ships without types that a strict checker accepts; the loop states what it uses of it (`loop.Devices`)."""


def make_fabric(settings: HardwareConfig) -> Fabric:
    """Fabric for these settings; under torchrun or SLURM it joins the processes that were started."""
    fabric_class, ddp_class = _import_fabric()
    accelerator = _accelerator(settings)
    devices = int(os.environ.get("LOCAL_WORLD_SIZE", settings.devices))
    several = devices * settings.nodes > 1 or int(os.environ.get("WORLD_SIZE", "1")) > 1
    # Buffers stay each process's own: the codebook's sums are reduced by the quantiser itself, frozen ones never move.
    strategy = ddp_class(broadcast_buffers=False, gradient_as_bucket_view=True) if several else "auto"
    precision = settings.precision
    if precision == "auto":
        precision = "bf16-mixed" if accelerator == "cuda" else "32-true"
    if accelerator == "cpu" and precision == "bf16-mixed":
        raise ConfigError(
            "hardware.precision is 'bf16-mixed', but on a CPU convolutions in bfloat16 give wrong numbers. "
            "Use 'auto' or '32-true'."
        )
    fabric = fabric_class(
        accelerator=accelerator, devices=devices, num_nodes=settings.nodes, strategy=strategy, precision=precision
    )
    if accelerator == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 for what stays in float32; fits ask for full precision
    fabric.launch()
    if several:
        atexit.register(leave_group)
    return fabric


def leave_group() -> None:
    """End the threads of a process group while the interpreter is there: one that ends after it aborts the process."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def place(model: Model, fabric: Fabric, settings: HardwareConfig) -> Model:
    """The model on the device, in the memory format that the settings ask for; values do not change."""
    model.to(fabric.device)
    if settings.channels_last:  # features follow the kernels' format through every layer
        model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]  # torch's stub leaves it out
    return model


def _accelerator(settings: HardwareConfig) -> str:
    if settings.accelerator == "cuda" and not torch.cuda.is_available():
        raise ConfigError("hardware.accelerator is 'cuda' but no CUDA device is found. Use 'auto' or 'cpu'.")
    if settings.accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return settings.accelerator


def _import_fabric() -> tuple[Any, Any]:
    """Fabric and its DDP strategy, from the small package or from the large one that contains it."""
    for package in ("lightning_fabric", "lightning.fabric"):
        try:
            return import_module(package).Fabric, import_module(f"{package}.strategies").DDPStrategy
        except ImportError:
            continue
    raise ToolError(
        "Training needs Lightning Fabric, which is not installed. Install it with: pip install 'tensorldm[train]'."
    )
