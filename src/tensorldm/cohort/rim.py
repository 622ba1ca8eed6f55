"""What a generous brain mask lets in: patches of bone and dura around the brain, dark and therefore noisy.

Where a mask ends a voxel too far out, signal is close to the noise and the fit gives tensors with negative eigenvalues.
In eight of nine real scans a mask grown by one voxel has 74 to 88 % of them on its rim; a tight mask has as few as 5 %
there (`benchmarks/violations_on_the_rim.py`) [choice: virtual-rim].
"""

from dataclasses import replace

import torch
from jaxtyping import Bool
from torch import Generator, Tensor
from torch.nn.functional import max_pool3d

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.draws import smooth_field, uniform
from tensorldm.cohort.ranges import Range

PATCH_MM = 12.0
SIGNAL = (0.02, 0.25)
"""b=0 signal relative to white matter: bone holds little water that a diffusion scan sees."""
DIFFUSIVITY_MM2_PER_S = (0.3e-3, 1.2e-3)


def add_rim(anatomy: Anatomy, shares: Range, *, generator: Generator) -> Anatomy:
    """The anatomy with a share of the shell around its brain, one voxel thick, taken into the mask."""
    share = uniform(generator, shares)
    signal, diffusivity, patches = _fields(anatomy, generator)
    rim = shell_around(anatomy.mask) & (patches < share)
    isotropic = anatomy.tensors.new_tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])[:, None]
    tensors, fractions, s0 = anatomy.tensors.clone(), anatomy.fractions.clone(), anatomy.s0.clone()
    tensors[0][:, rim] = isotropic * diffusivity[rim]
    fractions[0, rim] = 1.0
    s0[rim] = signal[rim]
    return replace(anatomy, tensors=tensors, fractions=fractions, s0=s0, mask=anatomy.mask | rim)


def shell_around(mask: Bool[Tensor, "x y z"]) -> Bool[Tensor, "x y z"]:
    """Voxels outside a mask that touch it, corners included."""
    wider = max_pool3d(mask.float()[None, None], kernel_size=3, stride=1, padding=1)[0, 0] > 0
    return wider & ~mask


def _fields(anatomy: Anatomy, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Signal, diffusivity, and an even field whose lower part is the patches; smooth, so that neighbours are alike."""
    x, y, z = anatomy.s0.shape
    size, device = anatomy.voxel_size, anatomy.s0.device
    fields = smooth_field((x, y, z), size, spacing_mm=PATCH_MM, channels=3, generator=generator, device=device)
    even = torch.special.ndtr(fields)
    signal = SIGNAL[0] * (SIGNAL[1] / SIGNAL[0]) ** even[0]
    diffusivity = DIFFUSIVITY_MM2_PER_S[0] + (DIFFUSIVITY_MM2_PER_S[1] - DIFFUSIVITY_MM2_PER_S[0]) * even[1]
    return signal, diffusivity, even[2]
