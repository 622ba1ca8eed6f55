"""Random numbers and smooth random fields, drawn on the CPU.

So a virtual head is the same on every device; only what fills whole series (noise) is drawn where it is used.
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.axes import SPLINE_STD, along_axes, spline

Shape = tuple[int, int, int]
Size = tuple[float, float, float]


def uniform(generator: Generator, bounds: tuple[float, float]) -> float:
    """An even draw between two bounds."""
    low, high = bounds
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def whole(generator: Generator, bounds: tuple[int, int]) -> int:
    """An even draw of a whole number, both bounds included."""
    low, high = bounds
    return int(torch.randint(low, high + 1, (), generator=generator))


def rotation(angles: Float[Tensor, "3"]) -> Float[Tensor, "3 3"]:
    """Rotation by the vector ``angles`` in radians: axis times angle."""
    x, y, z = angles.double()
    none = torch.zeros_like(x)
    skew = torch.stack([none, -z, y, z, none, -x, -y, x, none]).reshape(3, 3)
    turn: Tensor = torch.linalg.matrix_exp(skew)
    return turn


def any_rotation(generator: Generator) -> Float[Tensor, "3 3"]:
    """A rotation drawn evenly from all: a unit quaternion of four normal numbers."""
    w, x, y, z = torch.nn.functional.normalize(torch.randn(4, generator=generator, dtype=torch.float64), dim=0)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
        2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
        2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows).reshape(3, 3)


def smooth_field(
    shape: Shape, voxel_size: Size, *, spacing_mm: float, channels: int, generator: Generator, device: torch.device
) -> Float[Tensor, "c x y z"]:
    """Random fields of unit variance that vary over ``spacing_mm``: cubic splines with random coefficients."""
    x, y, z = (spline(size, voxel, spacing=spacing_mm) for size, voxel in zip(shape, voxel_size, strict=True))
    sizes = (channels, x.shape[1], y.shape[1], z.shape[1])
    coefficients = torch.randn(sizes, generator=generator).to(device)
    return along_axes(coefficients, (x, y, z)) / SPLINE_STD**3
