"""Agreement of two images inside a mask: PSNR, NMSE and SSIM.

The ranges are arguments: the published ones are in ``ranges``. Each measure takes the reference first.
Axes: x y z space.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.metrics.ranges import SSIM_K1, SSIM_K2, SSIM_RADIUS_VOXELS, SSIM_SIGMA_VOXELS


def psnr(
    reference: Float[Tensor, "*voxels"],
    prediction: Float[Tensor, "*voxels"],
    mask: Bool[Tensor, "*voxels"],
    *,
    data_range: float,
) -> Float[Tensor, ""]:
    """Peak signal-to-noise ratio in dB over the mask: 20 log10(range) - 10 log10(MSE); infinite for equal images."""
    error = (prediction - reference)[mask] / data_range  # scaled first: squares of 1e-6 mm²/s would lose float32 digits
    return -10 * error.square().mean().log10()


def nmse(
    reference: Float[Tensor, "*voxels"], prediction: Float[Tensor, "*voxels"], mask: Bool[Tensor, "*voxels"]
) -> Float[Tensor, ""]:
    """Normalised squared error over the mask: sum of squared errors / sum of squared reference. [choice: nmse]"""
    truth = reference[mask]
    scale = truth.abs().max() if truth.numel() else truth.sum()
    return ((prediction[mask] - truth) / scale).square().sum() / (truth / scale).square().sum()


def ssim(
    reference: Float[Tensor, "x y z"],
    prediction: Float[Tensor, "x y z"],
    mask: Bool[Tensor, "x y z"],
    *,
    data_range: float,
) -> Float[Tensor, ""]:
    """Mean structural similarity over the mask, from a 3D Gaussian window; volumes count as zero outside the mask.

    The background is zero beyond the array's edge too, so cropping or padding around the mask changes nothing.
    """
    if not bool(mask.any()):
        return reference.new_full((), float("nan"))
    box = _bounding_box(mask)
    inside = mask[box]
    a = reference[box].where(inside, 0) / data_range
    b = prediction[box].where(inside, 0) / data_range
    mean_a, mean_b, square_a, square_b, product = _smooth(torch.stack([a, b, a * a, b * b, a * b]))
    variance_a, variance_b = square_a - mean_a**2, square_b - mean_b**2
    covariance = product - mean_a * mean_b
    c1, c2 = SSIM_K1**2, SSIM_K2**2  # the range is 1 after scaling
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    structure = (2 * covariance + c2) / (variance_a + variance_b + c2)
    similarity: Tensor = luminance * structure
    return similarity[inside].mean()


def _bounding_box(mask: Bool[Tensor, "x y z"]) -> tuple[slice, slice, slice]:
    """The smallest box around the mask: nothing outside it is ever different from zero."""
    slices = []
    for axis in range(3):
        other = [other for other in range(3) if other != axis]
        places = mask.any(dim=other[1]).any(dim=other[0]).nonzero()
        slices.append(slice(int(places.min()), int(places.max()) + 1))
    return slices[0], slices[1], slices[2]


def _smooth(volumes: Float[Tensor, "n x y z"]) -> Float[Tensor, "n x y z"]:
    """The Gaussian window along each axis in turn.

    As products with banded matrices: on these sizes several times faster than a convolution, on CPU and GPU.
    """
    along_x, along_y, along_z = (_window_matrix(size, volumes) for size in volumes.shape[1:])
    volumes = volumes @ along_z
    volumes = along_y @ volumes
    return torch.einsum("ux,nxyz->nuyz", along_x, volumes)


def _window_matrix(size: int, like: Tensor) -> Float[Tensor, "size size"]:
    """Row u holds the window centred on u; what falls beyond the edge meets zeros and is left out."""
    places = torch.arange(size, device=like.device)
    distance = (places[:, None] - places[None, :]).abs()
    offsets = torch.arange(-SSIM_RADIUS_VOXELS, SSIM_RADIUS_VOXELS + 1, device=like.device, dtype=like.dtype)
    total = torch.exp(-0.5 * (offsets / SSIM_SIGMA_VOXELS) ** 2).sum()
    weights = torch.exp(-0.5 * (distance.to(like.dtype) / SSIM_SIGMA_VOXELS) ** 2) / total
    return weights.where(distance <= SSIM_RADIUS_VOXELS, 0)
