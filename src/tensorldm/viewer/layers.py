"""The maps that the page can show: what each is called, how it is coloured, and how it comes from a tensor field."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tensorldm.components import COMPONENTS
from tensorldm.dti.maps import (
    angle_degrees,
    axial_diffusivity,
    fractional_anisotropy,
    mean_diffusivity,
    principal_direction,
    radial_diffusivity,
)
from tensorldm.errors import DataError
from tensorldm.metrics.ranges import V1_MIN_FA
from tensorldm.shapes import Image
from tensorldm.viewer.field import Field, load_map

MICRO: Final = 1e3
"""From mm²/s to 10⁻³ mm²/s, in which diffusivities of the brain are numbers near 1."""
DIFFUSIVITY_UNIT: Final = "10⁻³ mm²/s"
SCALAR: Final = "scalar"
COLOUR: Final = "colour"


@dataclass(frozen=True)
class Layer:
    """One map: how the page names, groups and colours it."""

    name: str
    title: str
    group: str
    unit: str = ""
    low: float | None = 0.0
    high: float | None = 1.0
    """What is shown darkest and brightest; None leaves it to the page, where units have no fixed scale."""
    colours: str = "gray"
    """NiiVue's name of the colour map."""
    kind: str = SCALAR
    signed: bool = False
    """Zero is the middle of the scale."""


def _diffusivity(name: str, title: str, high: float) -> Layer:
    return Layer(name, title, "Maps", DIFFUSIVITY_UNIT, high=high)


LAYERS: Final[Mapping[str, Layer]] = {
    layer.name: layer
    for layer in (
        Layer("fa", "FA", "Maps", high=0.9),
        Layer("fa_mean", "FA, mean of the samples'", "Maps", high=0.9),
        _diffusivity("md", "MD", 2.0),
        Layer("colour_fa", "Colour FA", "Maps", kind=COLOUR),
        _diffusivity("ad", "AD", 2.5),
        _diffusivity("rd", "RD", 2.0),
        Layer("s0", "b=0 image", "Maps", "scanner units", low=None, high=None),
        *(Layer(f"d{c}", f"D{c}", "Tensor", DIFFUSIVITY_UNIT, high=2.0) for c in COMPONENTS[:3]),
        *(Layer(f"d{c}", f"D{c}", "Tensor", DIFFUSIVITY_UNIT, low=-0.5, high=0.5, signed=True) for c in COMPONENTS[3:]),
        Layer("v1_cone", "Cone about v1", "Doubts", "degrees", high=45.0, colours="inferno"),
        Layer("fa_width", "Width of the FA interval", "Doubts", high=0.4, colours="inferno"),
        Layer("md_width", "Width of the MD interval", "Doubts", DIFFUSIVITY_UNIT, high=0.4, colours="inferno"),
        Layer("prior_share", "Not measured: share of anisotropy", "Doubts", colours="viridis"),
        Layer("prior_sd", "Spread of what is not measured", "Doubts", DIFFUSIVITY_UNIT, high=0.3, colours="inferno"),
        Layer("consistency", "Residual of the signals over the noise", "Doubts", high=4.0, colours="inferno"),
        Layer("spd_touched", "Made positive definite", "Doubts", colours="warm"),
        Layer(
            "v1_angle",
            f"Angle of v1 to the reference, where its FA > {V1_MIN_FA:g}",
            "Against the reference",
            "degrees",
            high=90.0,
            colours="inferno",
        ),
        Layer("fa_error", "FA minus the reference's", "Against the reference", low=-0.3, high=0.3, signed=True),
        Layer(
            "md_error", "MD minus the reference's", "Against the reference", DIFFUSIVITY_UNIT, -0.3, 0.3, signed=True
        ),
    )
}
"""Every map by name, in the order of the page's list."""


def _component(packed: Tensor, *, index: int) -> Tensor:
    return packed[..., index] * MICRO


_FORMULAS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "fa": fractional_anisotropy,
    "md": lambda packed: mean_diffusivity(packed) * MICRO,
    "ad": lambda packed: axial_diffusivity(packed) * MICRO,
    "rd": lambda packed: radial_diffusivity(packed) * MICRO,
    **{f"d{c}": partial(_component, index=index) for index, c in enumerate(COMPONENTS)},
}
_FILES: Final = {
    "fa_mean": 1.0,
    "s0": 1.0,
    "v1_cone": 1.0,
    "prior_share": 1.0,
    "prior_sd": MICRO,
    "consistency": 1.0,
    "spd_touched": 1.0,
}
"""Maps that are read as they were written, and their factor."""
_WIDTHS: Final = {"fa_width": ("fa_low", "fa_high", 1.0), "md_width": ("md_low", "md_high", MICRO)}
_ERRORS: Final = ("v1_angle", "fa_error", "md_error")


def available(has: Callable[[str], bool], *, compared: bool) -> list[str]:
    """Names of the maps that a reconstruction has, given which files stand beside it and whether it has a reference."""
    return [name for name in LAYERS if _is_there(name, has, compared)]


def _is_there(name: str, has: Callable[[str], bool], compared: bool) -> bool:
    if name in _ERRORS:
        return compared
    if name in _WIDTHS:
        return all(has(part) for part in _WIDTHS[name][:2])
    return name not in _FILES or has(name)


def scalar_image(field: Field, name: str, *, reference: Field | None) -> Image:
    """A map on the field's grid, zero outside the brain."""
    if name in _FORMULAS:
        return field.scatter(_FORMULAS[name](field.inside))
    if name in _ERRORS:
        return _against(field, name, reference)
    if name in _WIDTHS:
        low, high, factor = _WIDTHS[name]
        return np.asarray((_written(field, high) - _written(field, low)) * np.float32(factor))
    return _written(field, name) * np.float32(_FILES[name])


def _written(field: Field, name: str) -> Image:
    image = load_map(field, name)
    if image is None:
        raise DataError(f"{field.shown.naming.image(name)}: the file is gone. Reconstruct the scan again.")
    return image


def _against(field: Field, name: str, reference: Field | None) -> Image:
    """Difference from the reference, where both have a tensor."""
    if reference is None or not reference.space.same_grid(field.space):
        raise DataError(
            f"{field.shown.tensor}: there is no reference on its grid to compare with. Name one with --reference."
        )
    both = field.mask & reference.mask
    if name == "v1_angle":
        both &= reference.scatter(fractional_anisotropy(reference.inside)) > V1_MIN_FA
    mine, theirs = (_on(each, both) for each in (field, reference))
    image = np.zeros(field.space.shape, dtype=np.float32)
    image[both] = _difference(name, mine, theirs).float().numpy()
    return image


def _on(field: Field, mask: np.ndarray) -> Float[Tensor, "v 6"]:
    return field.inside[torch.from_numpy(mask[field.mask])]


def _difference(name: str, mine: Float[Tensor, "v 6"], theirs: Float[Tensor, "v 6"]) -> Float[Tensor, " v"]:
    if name == "v1_angle":
        return angle_degrees(principal_direction(mine), principal_direction(theirs))
    formula = _FORMULAS[name.removesuffix("_error")]
    return formula(mine) - formula(theirs)
