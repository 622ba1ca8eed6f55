"""The virtual scanner: from an anatomy and a protocol to the voxels of a finished acquisition.

The signal of a voxel is S0 Σ_k f_k exp(-b gᵀ D_k g). Thicker slices, point spread and motion act on the signal,
never on tensors. Noise is that of magnitude images: Rician for one receiver, non-central χ for several combined by
sum of squares. Its level follows from the SNR: the mean b=0 signal of white matter over the noise's standard
deviation in one real channel, before any blurring.
Axes: k compartment, v voxel of the mask, n volume, x y z space.
"""

from dataclasses import dataclass, replace
from math import isinf

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from tensorldm.cohort.anatomy import TISSUES, Anatomy
from tensorldm.cohort.axes import Matrices, Size, along_axes, averaging, gaussian_matrices
from tensorldm.cohort.deformation import coordinates
from tensorldm.cohort.displacement import Shifts, displaced, draw_poses, draw_shifts, seen_directions
from tensorldm.cohort.nonlinearity import GradientField, draw_gradient_field
from tensorldm.cohort.protocol import Protocol
from tensorldm.dti.fit import deviation_matrices
from tensorldm.dti.packing import congruence
from tensorldm.dti.signal import predict_signal
from tensorldm.shapes import BVals, Directions

WHITE = TISSUES.index("white")
MOSTLY_WHITE = 0.9
SMALLEST = 1e-6


@dataclass(frozen=True)
class Scan:
    """An acquisition on its own grid: signal at the voxels of its mask, with noise and without."""

    protocol: Protocol
    signal: Float[Tensor, "v n"]
    noiseless: Float[Tensor, "v n"]
    mask: Bool[Tensor, "x y z"]
    voxel_size: Size
    expected: Float[Tensor, "v n"]
    """What a fit of logarithms sees of the signal on average over the noise."""
    sigma: float
    """Standard deviation of the noise in one real channel."""
    field: GradientField | None = None
    """How the gradients deviate from voxel to voxel; None where they do not."""


def scan(anatomy: Anatomy, protocol: Protocol, *, generator: Generator, noise_generator: Generator) -> Scan:
    """Scan an anatomy: ``generator`` (CPU) moves the head, ``noise_generator`` (anatomy's device) makes noise."""
    poses = draw_poses(protocol, generator) if protocol.moves else None
    field = draw_gradient_field(protocol.nonlinearity, generator) if protocol.nonlinearity > 0 else None
    shifts = _draw_shifts(anatomy, protocol, generator) if protocol.distortion.acts else None
    directions = seen_directions(protocol.directions, poses)
    noiseless = brain_signal(_as_gradients_see(anatomy, field), protocol.bvals, directions)
    mask, voxel_size = anatomy.mask, anatomy.voxel_size
    if not protocol.keeps_the_grid:
        if poses is not None:
            noiseless, mask = displaced(
                laid_out(noiseless, mask), mask, poses=poses, shifts=shifts, voxel_size=voxel_size
            )
        if protocol.resamples:
            noiseless, mask, voxel_size = _acquire(noiseless, mask, anatomy, protocol)
    sigma = noise_level(anatomy, protocol.snr)
    noisy = add_noise(noiseless, sigma, coils=protocol.coils, generator=noise_generator)
    expected = expected_magnitude(noiseless, sigma, coils=protocol.coils)
    if protocol.smoothing_fwhm > 0:
        noisy, noiseless, expected = (
            smoothed(values, mask, fwhm=protocol.smoothing_fwhm, voxel_size=voxel_size)
            for values in (noisy, noiseless, expected)
        )
    return Scan(protocol, noisy, noiseless, mask, voxel_size, expected, sigma, field)


def brain_signal(anatomy: Anatomy, bvals: BVals, directions: Directions) -> Float[Tensor, "v n"]:
    """Noise-free signal of every voxel of the mask: the compartments' signals added up."""
    tensors = anatomy.tensors[..., anatomy.mask]
    weights = anatomy.fractions[:, anatomy.mask] * anatomy.s0[anatomy.mask].clamp(min=SMALLEST)
    table = (bvals.to(weights), directions.to(weights))
    total = predict_signal(tensors[0].T, weights[0], *table)
    for packed, weight in zip(tensors[1:], weights[1:], strict=True):
        total += predict_signal(packed.T, weight, *table)
    return total


def deviations(field: GradientField, mask: Bool[Tensor, "x y z"], *, voxel_size: Size) -> Float[Tensor, "v 9"]:
    """The gradients' deviation at the voxels of a mask, as `grad_dev` files and fits want it."""
    x, y, z = mask.shape
    return field.at(coordinates((x, y, z), voxel_size, device=mask.device)[:, mask])


def _as_gradients_see(anatomy: Anatomy, field: GradientField | None) -> Anatomy:
    """Gradients (I + L) g see the tensor D as plain gradients g see (I + L)ᵀ D (I + L)."""
    if field is None:
        return anatomy
    mask = anatomy.mask
    seen = deviation_matrices(deviations(field, mask, voxel_size=anatomy.voxel_size)).mT
    tensors = anatomy.tensors.clone()
    for index, packed in enumerate(tensors[..., mask]):
        tensors[index, :, mask] = congruence(packed.T, seen).T
    return replace(anatomy, tensors=tensors)


def noise_level(anatomy: Anatomy, snr: float) -> float:
    """The noise's standard deviation in one real channel; where there is little white matter, of the brain's mean."""
    if isinf(snr):
        return 0.0
    white = anatomy.mask & (anatomy.tissue[WHITE] > MOSTLY_WHITE)
    region = white if bool(white.any()) else anatomy.mask
    return float(anatomy.s0[region].mean()) / snr


def add_noise(
    signal: Float[Tensor, "*space"], sigma: float, *, coils: int, generator: Generator
) -> Float[Tensor, "*space"]:
    """Magnitude of the signal in ``coils`` receivers, each with complex Gaussian noise, combined by sum of squares.

    Only how the signal splits between receivers could matter, and it does not: one real channel may carry it all.
    """
    if sigma == 0:
        return signal.clone()
    noise = torch.empty_like(signal)
    square = noise.normal_(0, sigma, generator=generator).add_(signal).square_()
    for _ in range(2 * coils - 1):
        channel = torch.empty_like(signal).normal_(0, sigma, generator=generator)
        square.addcmul_(channel, channel)
    return square.sqrt_()


def expected_magnitude(signal: Float[Tensor, "*space"], sigma: float, *, coils: int) -> Float[Tensor, "*space"]:
    """exp E[ln M] of the magnitude M that ``add_noise`` gives, within 2 %.

    The two ends are exact: without signal E[ln M²] = ln 2σ² + ψ(coils), and above the noise M² exceeds the signal's
    square by (2 coils - 2) σ².
    """
    if sigma == 0:
        return signal
    above = 2.0 * coils - 2
    without = 2 * float(torch.tensor(float(coils)).digamma().exp())
    square = (signal / sigma).square()
    return sigma * (square + above + (without - above) * torch.exp(-square / (2 * coils + 1))).sqrt()


def laid_out(values: Float[Tensor, "v n"], mask: Bool[Tensor, "x y z"]) -> Float[Tensor, "n x y z"]:
    """Values at the mask's voxels as volumes, zero elsewhere."""
    volumes = values.new_zeros(values.shape[1], *mask.shape)
    volumes[:, mask] = values.T
    return volumes


def smoothed(
    values: Float[Tensor, "v n"], mask: Bool[Tensor, "x y z"], *, fwhm: float, voxel_size: Size
) -> Float[Tensor, "v n"]:
    """A series blurred within its mask: what is outside does not mix in."""
    x, y, z = mask.shape
    blur = gaussian_matrices((x, y, z), voxel_size, fwhm=fwhm, device=values.device)
    cover = along_axes(mask.to(values.dtype)[None], blur)[0][mask]
    return (along_axes(laid_out(values, mask), blur)[:, mask] / cover).T


def _draw_shifts(anatomy: Anatomy, protocol: Protocol, generator: Generator) -> Shifts:
    x, y, z = anatomy.s0.shape
    return draw_shifts(
        protocol.distortion,
        protocol.bvals,
        shape=(x, y, z),
        voxel_size=anatomy.voxel_size,
        generator=generator,
        device=anatomy.s0.device,
    )


def _acquire(
    signal: Float[Tensor, "v n"], mask: Bool[Tensor, "x y z"], anatomy: Anatomy, protocol: Protocol
) -> tuple[Float[Tensor, "v2 n"], Bool[Tensor, "x2 y2 z2"], Size]:
    """Blur and average the signal onto the scanner's grid; the new mask is where at least half a voxel is brain.

    What surrounds the brain is unknown, so the signal is that of the brain's share of each voxel alone.
    """
    matrices, voxel_size = grid_matrices(anatomy, protocol)
    volumes = along_axes(laid_out(signal, mask), matrices)
    cover = along_axes(mask.to(signal.dtype)[None], matrices)[0]
    seen = cover >= 0.5
    return (volumes[:, seen] / cover[seen]).T, seen, voxel_size


def grid_matrices(anatomy: Anatomy, protocol: Protocol) -> tuple[Matrices, Size]:
    """How the scanner's voxels collect the anatomy's, and their size."""
    if protocol.voxel_size is None and protocol.slice_thickness is None:
        i, j, k = anatomy.s0.shape
        kept = gaussian_matrices((i, j, k), anatomy.voxel_size, fwhm=protocol.blur_fwhm, device=anatomy.s0.device)
        return kept, anatomy.voxel_size
    new = protocol.voxel_size or anatomy.voxel_size
    thickness = protocol.slice_thickness or new[2]
    matrices = []
    for axis, (size, voxel) in enumerate(zip(anatomy.s0.shape, anatomy.voxel_size, strict=True)):
        count = max(1, round(size * voxel / new[axis]))
        width = thickness if axis == 2 else new[axis]
        matrices.append(averaging((size, voxel), (count, new[axis]), width=width, blur_fwhm=protocol.blur_fwhm))
    x, y, z = matrices
    return (x, y, z), new
