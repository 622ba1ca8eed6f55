"""Random numbers and smooth random fields, drawn on the CPU.

So a virtual head is the same on every device; only what fills whole series (noise) is drawn where it is used.
"""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.axes import SPLINE_STD, Shape, Size, along_axes, spline_matrices


def uniform(generator: Generator, bounds: tuple[float, float]) -> float:
    """An even draw between two bounds."""
    low, high = bounds
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def whole(generator: Generator, bounds: tuple[int, int]) -> int:
    """An even draw of a whole number, both bounds included."""
    low, high = bounds
    return int(torch.randint(low, high + 1, (), generator=generator))


def rotation(angles: Float[Tensor, "*n 3"]) -> Float[Tensor, "*n 3 3"]:
    """Rotation by the vector ``angles`` in radians: axis times angle."""
    x, y, z = angles.double().unbind(dim=-1)
    none = torch.zeros_like(x)
    skew = torch.stack([none, -z, y, z, none, -x, -y, x, none], dim=-1).reshape(*x.shape, 3, 3)
    turn: Tensor = torch.linalg.matrix_exp(skew)
    return turn


def any_rotation(generator: Generator) -> Float[Tensor, "3 3"]:
    """A rotation drawn evenly from all: a unit quaternion of four normal numbers."""
    drawn = torch.randn(4, generator=generator, dtype=torch.float64)
    w, x, y, z = torch.nn.functional.normalize(drawn, dim=0).tolist()
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
        2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
        2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.tensor(rows, dtype=torch.float64).reshape(3, 3)


def smooth_field(
    shape: Shape, voxel_size: Size, *, spacing_mm: float, channels: int, generator: Generator, device: torch.device
) -> Float[Tensor, "c x y z"]:
    """Random fields of unit variance that vary over ``spacing_mm``: cubic splines with random coefficients.

    These are drawn evenly between bounds. Sixty-four of them meet in a voxel, so the field is all but normal, and it
    cannot run away; even draws are also the quickest to make.
    """
    matrices = spline_matrices(shape, voxel_size, spacing=spacing_mm, device=device)
    sizes = (channels, *(matrix.shape[1] for matrix in matrices))
    coefficients = torch.rand(sizes, generator=generator).to(device) * 2 - 1
    return along_axes(coefficients, matrices) * (sqrt(3) / SPLINE_STD**3)
