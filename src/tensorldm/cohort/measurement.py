"""The paper's path on a virtual scan: the reference tensor from all volumes, the sparse input from some of them.

Axes: c DWI volume of the input (4 in the paper), d tensor component (6), v voxel, n volume, x y z space.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.cohort.axes import Matrices, Shape, Size, along_axes
from tensorldm.cohort.protocol import Protocol
from tensorldm.cohort.scanner import Scan, deviations, laid_out
from tensorldm.cohort.settings import ReferenceNoise
from tensorldm.dti.fit import fit_ols, fit_ols_nonlinear_gradients
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.imaging.kernels import cubic_weights


@dataclass(frozen=True)
class Measurement:
    """On the working grid; zero outside the mask. Tensors are mm²/s in image axes."""

    dwi: Float[Tensor, "c x y z"]
    reference: Float[Tensor, "6 x y z"]
    clean: Float[Tensor, "6 x y z"]
    """The fit of the same acquisition without noise."""
    mask: Bool[Tensor, "x y z"]


def measure(scan: Scan, *, shape: Shape, voxel_size: Size, noise: ReferenceNoise = "all") -> Measurement:
    """Fit and select on a working grid; DWIs of another grid are resampled first (cubic, as prepared scans are).

    With ``shared`` noise the reference is what the fit comes to on average, given the input: volumes that the input
    does not hold have no noise, which nothing could foretell, and for the rest it is the same. [choice: shared-noise]
    """
    signal, noiseless, mask = scan.signal, scan.noiseless, scan.mask
    fitted = signal if noise == "all" else _with_shared_noise(scan)
    if tuple(mask.shape) != shape or scan.voxel_size != voxel_size:
        there = _on_grid(scan, shape, voxel_size)
        cover = along_axes(scan.mask.to(signal.dtype)[None], there)[0]
        mask = cover >= 0.5
        again = fitted is not signal
        signal, noiseless = (_resampled(values, scan.mask, there, mask) for values in (signal, noiseless))
        fitted = _resampled(fitted, scan.mask, there, mask) if again else signal
    table = (scan.protocol.bvals, scan.protocol.directions)
    both = torch.stack([fitted, noiseless])
    if scan.field is None:
        (reference, clean), _ = fit_ols(both, *table)
    else:
        known = deviations(scan.field, mask, voxel_size=voxel_size).expand(2, -1, 9)
        (reference, clean), _ = fit_ols_nonlinear_gradients(both, *table, known)
    return Measurement(
        dwi=laid_out(_sparse(signal, scan.protocol), mask),
        reference=laid_out(reference, mask),
        clean=laid_out(clean, mask),
        mask=mask,
    )


def _with_shared_noise(scan: Scan) -> Float[Tensor, "v n"]:
    shared = torch.zeros(len(scan.protocol.bvals), dtype=torch.bool)
    shared[list(scan.protocol.sparse)] = True
    if scan.protocol.mean_b0:
        shared |= (scan.protocol.bvals <= B0_MAX_S_PER_MM2).cpu()
    return torch.where(shared.to(scan.signal.device), scan.signal, scan.expected)


def _sparse(signal: Float[Tensor, "v n"], protocol: Protocol) -> Float[Tensor, "v c"]:
    """The input's volumes, b=0 first; with several b=0s it may be their mean."""
    chosen = signal[:, list(protocol.sparse)]
    if protocol.mean_b0:
        chosen[:, 0] = signal[:, (protocol.bvals <= B0_MAX_S_PER_MM2).to(signal.device)].mean(dim=1)
    return chosen


def _on_grid(scan: Scan, shape: Shape, voxel_size: Size) -> Matrices:
    matrices = []
    for old, new, old_voxel, new_voxel in zip(scan.mask.shape, shape, scan.voxel_size, voxel_size, strict=True):
        positions = (torch.arange(new, dtype=torch.float64) - (new - 1) / 2) * new_voxel / old_voxel + (old - 1) / 2
        matrices.append(torch.from_numpy(cubic_weights(positions.numpy(), old)))
    x, y, z = matrices
    return x, y, z


def _resampled(
    values: Float[Tensor, "v n"],
    old_mask: Bool[Tensor, "x y z"],
    matrices: Matrices,
    mask: Bool[Tensor, "x2 y2 z2"],
) -> Float[Tensor, "v2 n"]:
    """Cubic weights overshoot at edges, so the result is kept within the range of the signal."""
    volumes = along_axes(laid_out(values, old_mask), matrices)
    return volumes[:, mask].T.clamp(min=values.min(), max=values.max())
