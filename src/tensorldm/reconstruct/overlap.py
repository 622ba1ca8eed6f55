"""How many processes read and write around one GPU, so that it never waits for a disk or a picture."""

import math
import os
from typing import Final

import torch

from tensorldm import bounded
from tensorldm.errors import ConfigError

VARIABLE: Final = "TENSORLDM_HELPERS"
"""Environment variable with the number of helpers, on any device; 0 is one scan after another in one process."""
LEAST_SCANS: Final = 4
"""[choice: helpers] Starting helpers takes as long as reading and writing one or two scans."""
MOST_HELPERS: Final = 16
PROCESS_BYTES: Final = 2**29
"""Of a helper without a scan: its libraries."""
VOXEL_BYTES: Final = 1024
VALUE_BYTES: Final = 12
"""Of every voxel, for maps, samples and what they are made from; and of every volume of it that is read. A whole brain
at 2 mm with four volumes, four samples and pictures took 0.84 GiB in all, of 1.4 by this rule."""


def bytes_of_helper(shape: tuple[int, int, int], volumes: int) -> int:
    """Memory that a helper needs for a scan of this many voxels and volumes to be read, with a margin."""
    return PROCESS_BYTES + math.prod(shape) * (VOXEL_BYTES + VALUE_BYTES * volumes)


def helpers_for(device: torch.device, scans: int, *, bytes_each: int) -> int:
    """How many helpers are worth starting; 0: none, this process does all.

    Each has one scan in memory, for which it needs ``bytes_each``. A CPU is its own reader and writer: helpers would
    take the cores from the network.
    """
    said = os.environ.get(VARIABLE, "")
    if said:
        if not said.isdigit():
            raise ConfigError(f"{VARIABLE} is '{said}'; give a number of processes, 0 for none, or leave it out.")
        wanted = int(said)
    elif device.type == "cpu" or scans < LEAST_SCANS:
        wanted = 0
    else:
        wanted = min(max(2, cores_here() - 1), bounded.machine_bytes() // max(bytes_each, 1), MOST_HELPERS)
    wanted = min(wanted, scans)
    return wanted if wanted > 1 else 0  # one alone would wait for the device while the device waits for it


def cores_here() -> int:
    """Cores that this process may use: a batch system often gives fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
