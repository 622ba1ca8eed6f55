"""Every published measure of one reconstructed tensor field against its reference.

Both fields are packed, mm²/s, in the same image axes. The quantities and metrics named here are those of the table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.components import COMPONENTS
from tensorldm.dti.maps import colour_fa, fractional_anisotropy, mean_diffusivity, radial_diffusivity
from tensorldm.metrics.image import nmse, psnr, ssim
from tensorldm.metrics.ranges import COMPONENT_RANGES, LEM_SENSITIVITY_FLOORS_MM2_PER_S, MAP_RANGES
from tensorldm.metrics.tensors import lem, off_diagonal_lem, spd_violation_rate, v1_angles

TENSOR = "tensor"
PSNR, SSIM, NMSE = "psnr_db", "ssim", "nmse"
LEM, OFF_DIAGONAL_LEM = "lem", "off_diagonal_lem"
SPD_VIOLATIONS = "spd_violations_percent"
V1_MEDIAN, V1_MEAN = "v1_median_degrees", "v1_mean_degrees"
MASK_VOXELS = "mask_voxels"
COMPONENT_NAMES = tuple(f"D{name}" for name in COMPONENTS)
MAP_NAMES = tuple(MAP_RANGES)

Field = Float[Tensor, "x y z 6"]
Image = Float[Tensor, "x y z"]
Mask = Bool[Tensor, "x y z"]


class Figure(NamedTuple):
    """One measured value."""

    quantity: str
    metric: str
    value: float


def sensitivity_name(floor: float) -> str:
    """The metric's name for LEM at another floor."""
    return f"{LEM}_floor_{floor:g}"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A tensor field with its maps, computed once however often it is compared."""

    field: Field
    mask: Mask
    maps: Mapping[str, tuple[Image, ...]]
    """By name, each as its channels: one, or three for colour FA; zero outside the mask."""


def prepare(field: Field, mask: Mask) -> Prepared:
    """The maps of a field; only the mask's voxels are worked on."""
    inside = field[mask]
    channels = {
        "MD": (mean_diffusivity(inside),),
        "RD": (radial_diffusivity(inside),),
        "FA": (fractional_anisotropy(inside),),
        "colour FA": colour_fa(inside).unbind(dim=-1),
    }
    return Prepared(field, mask, {name: tuple(_on_grid(c, mask) for c in channels[name]) for name in MAP_NAMES})


def measure(reference: Prepared, prediction: Prepared) -> list[Figure]:
    """All figures of a prediction in the reference's mask, which must not be empty."""
    return [
        *_measure_components(reference, prediction),
        *_measure_maps(reference, prediction),
        *_measure_tensors(reference.field, prediction.field, reference.mask),
    ]


def measure_reference(reference: Prepared) -> list[Figure]:
    """What is worth knowing of the reference itself: the size of the mask and its own violations."""
    return [
        Figure(TENSOR, MASK_VOXELS, float(reference.mask.sum())),
        Figure(TENSOR, SPD_VIOLATIONS, spd_violation_rate(reference.field, reference.mask).item()),
    ]


def _measure_components(reference: Prepared, prediction: Prepared) -> Iterator[Figure]:
    for d, (name, data_range) in enumerate(zip(COMPONENT_NAMES, COMPONENT_RANGES, strict=True)):
        pair = (reference.field[..., d], prediction.field[..., d])
        yield from _measure_image(name, [pair], reference.mask, data_range)


def _measure_maps(reference: Prepared, prediction: Prepared) -> Iterator[Figure]:
    for name, data_range in MAP_RANGES.items():
        pairs = list(zip(reference.maps[name], prediction.maps[name], strict=True))
        yield from _measure_image(name, pairs, reference.mask, data_range)


def _measure_image(name: str, pairs: list[tuple[Image, Image]], mask: Mask, data_range: float) -> Iterator[Figure]:
    """NMSE, PSNR and SSIM, averaged over the channels [choice: colour-fa]."""
    yield Figure(name, NMSE, _mean([nmse(a, b, mask) for a, b in pairs]))
    yield Figure(name, PSNR, _mean([psnr(a, b, mask, data_range=data_range) for a, b in pairs]))
    yield Figure(name, SSIM, _mean([ssim(a, b, mask, data_range=data_range) for a, b in pairs]))


def _measure_tensors(reference: Field, prediction: Field, mask: Mask) -> Iterator[Figure]:
    yield Figure(TENSOR, LEM, lem(reference, prediction, mask).item())
    for floor in LEM_SENSITIVITY_FLOORS_MM2_PER_S:
        yield Figure(TENSOR, sensitivity_name(floor), lem(reference, prediction, mask, floor=floor).item())
    yield Figure(TENSOR, OFF_DIAGONAL_LEM, off_diagonal_lem(reference, prediction, mask).item())
    yield Figure(TENSOR, SPD_VIOLATIONS, spd_violation_rate(prediction, mask).item())
    angles = v1_angles(reference, prediction, mask)
    # Not torch.median, which takes the lower of the two middle values. NaN where no voxel is anisotropic enough.
    yield Figure(TENSOR, V1_MEDIAN, angles.quantile(0.5).item() if len(angles) else float("nan"))
    yield Figure(TENSOR, V1_MEAN, angles.mean().item())


def _on_grid(values: Float[Tensor, " voxels"], mask: Mask) -> Image:
    image = values.new_zeros(mask.shape)
    image[mask] = values
    return image


def _mean(values: list[Tensor]) -> float:
    return torch.stack(values).mean().item()
