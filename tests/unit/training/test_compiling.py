"""Compiling for training: as many variants as needed, not one for every number of volumes.

In a process of its own: the checks of shapes that tests have switched on cannot be traced.
"""

import subprocess
import sys

VARIANTS = """
import torch
from torch._dynamo.utils import counters
from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.training.compiling import compile_blocks

config = read_config(RunConfig, "smoke", ["model.autoencoder.conditioner=directional"])
model = build_model(config.model, 0)
compile_blocks(model, backend="eager")
conditioner = model.autoencoder.conditioner
for number in range(4, 14):
    dwi = torch.rand(2, number, 16, 16, 16)
    bvals, directions = torch.full((2, number), 1000.0), torch.eye(3).repeat(5, 1)[None, :number].repeat(2, 1, 1)
    conditioner(dwi, bvals, directions=directions, analytic=torch.zeros(2, 6, 16, 16, 16), adc=dwi)
    print(counters["stats"]["unique_graphs"])
"""


def test_blocks_that_read_the_volumes_are_compiled_for_any_number_of_them():
    done = subprocess.run([sys.executable, "-c", VARIANTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    counts = [int(line) for line in done.stdout.split()]
    assert counts[0] > 0, "something is compiled at all"
    assert counts[-1] <= 3 * counts[0], "a few variants serve ten numbers of volumes"
