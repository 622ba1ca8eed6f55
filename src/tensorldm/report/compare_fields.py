"""Tensor fields of several methods beside their reference, and what can be seen of each: maps and their errors.

Fields are in image axes of one grid. Components and colours are shown in scanner axes; measures are `evaluate`'s.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from tensorldm.components import COMPONENTS, DIAGONAL
from tensorldm.dti.logarithm import log_euclidean_distance
from tensorldm.dti.maps import angle_degrees, colour_fa, fractional_anisotropy, mean_diffusivity, principal_direction
from tensorldm.evaluation.evaluate import REFERENCE, evaluate_files, name_methods
from tensorldm.evaluation.table import Row
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.mask_files import find_mask
from tensorldm.imaging.nifti import read_mask
from tensorldm.imaging.tensor_files import read_convention, read_provenance, read_tensor
from tensorldm.imaging.volume import Space
from tensorldm.metrics.ranges import LEM_FLOOR_MM2_PER_S, V1_MIN_FA
from tensorldm.report.colours import ANISOTROPY, DIFFUSIVITY, OFF_DIAGONAL, SIGNED, Scale
from tensorldm.shapes import MaskImage

Inside = Float[Tensor, "v 6"]
"""Tensors of the mask's voxels."""
Values = Float[Tensor, "v *n"]
FA_ERROR: Final = Scale(-0.4, 0.4, SIGNED)
DIFFUSIVITY_ERROR: Final = Scale(-0.5e-3, 0.5e-3, SIGNED, "10⁻³ mm²/s", one=1e-3)
ANGLE: Final = Scale(0.0, 90.0, "magma", "°")
DISTANCE: Final = Scale(0.0, 2.0, "magma")


@dataclass(frozen=True, eq=False)
class Comparison:
    """A reference, the methods' tensors on its grid, and every figure of `evaluate`."""

    subject: str
    space: Space
    mask: MaskImage
    fields: Mapping[str, Inside]
    """Inside the mask, scanner axes, mm²/s, by name; the reference first."""
    rows: Sequence[Row]
    reference_method: str = ""
    """How the reference was made, where its sidecar says so."""

    @property
    def methods(self) -> list[str]:
        """All but the reference."""
        return [name for name in self.fields if name != REFERENCE]

    def scatter(self, values: Values) -> Float[ndarray, "x y z *n"]:
        """On the grid, not a number outside the mask."""
        image = np.full((*self.mask.shape, *values.shape[1:]), np.nan, dtype=np.float32)
        image[self.mask] = values.numpy()
        return image


@dataclass(frozen=True)
class Quantity:
    """What is shown of every method: a map, and how far it is from the reference's."""

    key: str
    title: str
    value: Callable[[Inside], Values] | None
    """None where only the error can be drawn."""
    scale: Scale | None
    """None: colours."""
    error: Callable[[Inside, Inside], Values]
    """Of reference and prediction."""
    error_title: str
    error_scale: Scale
    measured: str
    """The quantity's name in the table of figures."""


def read_comparison(
    reference: Path,
    predictions: Sequence[Path],
    *,
    mask: Path | None = None,
    convention: str | None = None,
    subject: str | None = None,
) -> Comparison:
    """Everything that is compared; refuses what `tensorldm evaluate` refuses, in its words."""
    rows = evaluate_files(reference, predictions, mask=mask, convention=convention, subject=subject)
    chosen = mask or read_provenance(reference).mask or find_mask(reference)
    assert chosen is not None, "there is no evaluation without a mask"
    inside, space = read_mask(chosen)
    named = {REFERENCE: reference, **dict(zip(name_methods(predictions), predictions, strict=True))}
    fields = {name: _inside(path, inside, convention) for name, path in named.items()}
    return Comparison(rows[0].subject, space, inside, fields, rows, read_provenance(reference).method or "")


def _inside(path: Path, mask: MaskImage, convention: str | None) -> Inside:
    image = read_tensor(path, convention=read_convention(path, default=convention))
    return torch.from_numpy(tensor_to_frame(image.data[mask].astype(np.float64), image.space, target="scanner"))


def _difference(formula: Callable[[Inside], Values]) -> Callable[[Inside, Inside], Values]:
    return lambda reference, prediction: formula(prediction) - formula(reference)


def _component(index: int) -> Callable[[Inside], Values]:
    return lambda packed: packed[..., index]


def _direction_error(reference: Inside, prediction: Inside) -> Values:
    """Degrees between the principal directions, where the reference has one."""
    angles = angle_degrees(principal_direction(reference), principal_direction(prediction))
    return torch.where(fractional_anisotropy(reference) > V1_MIN_FA, angles, torch.nan)


def _log_distance(reference: Inside, prediction: Inside) -> Values:
    return log_euclidean_distance(reference, prediction, floor=LEM_FLOOR_MM2_PER_S)


def _component_quantity(index: int) -> Quantity:
    name, formula = f"D{COMPONENTS[index]}", _component(index)
    scale = DIFFUSIVITY if index in DIAGONAL else OFF_DIAGONAL
    return Quantity(name, name, formula, scale, _difference(formula), "minus reference", DIFFUSIVITY_ERROR, name)


QUANTITIES: Final = (
    Quantity(
        "colour-fa",
        "Colour FA and fibre direction",
        colour_fa,
        None,
        _direction_error,
        f"angle to the reference, where its FA > {V1_MIN_FA:g}",
        ANGLE,
        "colour FA",
    ),
    Quantity(
        "fa",
        "FA",
        fractional_anisotropy,
        ANISOTROPY,
        _difference(fractional_anisotropy),
        "minus reference",
        FA_ERROR,
        "FA",
    ),
    Quantity(
        "md",
        "MD",
        mean_diffusivity,
        DIFFUSIVITY,
        _difference(mean_diffusivity),
        "minus reference",
        DIFFUSIVITY_ERROR,
        "MD",
    ),
    Quantity("lem", "Whole tensor", None, None, _log_distance, "log-Euclidean distance", DISTANCE, "tensor"),
    *(_component_quantity(index) for index in range(len(COMPONENTS))),
)
