"""Which maps of a reconstruction are shown, in which colours, with which words."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.components import COMPONENTS, DIAGONAL
from tensorldm.dti.maps import colour_fa, fractional_anisotropy, mean_diffusivity
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.volume import Space
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.report.colours import ANISOTROPY, DIFFUSIVITY, OFF_DIAGONAL, Scale
from tensorldm.report.figures import B0_PERCENTILE
from tensorldm.report.pictures import Map, axes_legend
from tensorldm.shapes import Image, MaskImage

CONE = Scale(0.0, 90.0, "magma", "°")
SHARE = Scale(0.0, 1.0, "viridis")
FA_WIDTH = Scale(0.0, 0.6, "magma")
MD_WIDTH = Scale(0.0, 0.6e-3, "magma", "10⁻³ mm²/s", one=1e-3)
PRIOR_SD = Scale(0.0, 0.5e-3, "magma", "10⁻³ mm²/s", one=1e-3)
CONSISTENCY = Scale(0.0, 4.0, "viridis")
TOUCHED_COLOURS = ((0.16, 0.18, 0.2), (1.0, 0.75, 0.2))
"""Of voxels that were left as they are, and of those that were not."""


def main_maps(result: Reconstruction) -> Iterator[Map]:
    """The b=0 image, FA, MD and colour FA."""
    b0 = result.s0[result.mask]
    bright = float(np.percentile(b0, B0_PERCENTILE)) or 1.0
    fa, md, colours = tensor_images(result.tensor, space=result.space, mask=result.mask)
    yield Map("fa", "FA", fa, ANISOTROPY, "Fractional anisotropy: 0 in fluid, highest in tight bundles.", _range(fa))
    yield Map(
        "md", "MD", md, DIFFUSIVITY, "Mean diffusivity. Tissue is an even grey, fluid is white.", _range(md, 1e-3)
    )
    yield Map(
        "colour-fa",
        "Colour FA",
        colours,
        None,
        "FA in the colour of the fibres' direction, in scanner axes.",
        "Colour is the direction of the fibres, brightness is FA.",
        axes_legend(),
    )
    yield Map(
        "b0",
        "b = 0",
        outside_unknown(result.s0, result.mask),
        Scale(0.0, bright),
        "The image without diffusion weighting that everything is measured against, in the scanner's units.",
        "Signal without diffusion weighting.",
    )


def component_maps(result: Reconstruction) -> Iterator[Map]:
    """The six components in scanner axes, so that they do not depend on how the array is stored."""
    fields = component_images(result.tensor, space=result.space, mask=result.mask)
    for d, name in enumerate(COMPONENTS):
        on_diagonal = d in DIAGONAL
        words = (
            f"Diffusivity along {name[0]}."
            if on_diagonal
            else f"How much diffusion along {name[0]} and {name[1]} go together."
        )
        yield Map(
            f"D{name}",
            f"D{name}",
            fields[..., d],
            DIFFUSIVITY if on_diagonal else OFF_DIAGONAL,
            words,
            _range(fields[..., d], 1e-3),
        )


def doubt_maps(result: Reconstruction) -> Iterator[Map]:
    """How sure the tensor is, and how much of it was measured; those of several samples only where there are."""
    extra = {name: outside_unknown(image, result.mask) for name, image in result.extra.items()}
    if "v1_cone" in extra:
        yield Map(
            "v1-cone",
            "95 % cone of v1",
            extra["v1_cone"],
            CONE,
            "The true fibre direction lies within this angle of v1. At 90° it is not known at all.",
            _range(extra["v1_cone"]),
        )
    yield Map(
        "prior-share",
        "Data or prior",
        extra["prior_share"],
        SHARE,
        "Share of the anisotropy that no measured direction sees. Bright: the method's knowledge of brains decided; "
        "dark: the scan did, or the method left out what it does not show. Means nothing where FA is near 0.",
        _range(extra["prior_share"]),
    )
    for name, title, scale, words in (
        ("fa", "FA, width of the interval", FA_WIDTH, "From the lower to the upper end of the 95 % interval of FA."),
        ("md", "MD, width of the interval", MD_WIDTH, "From the lower to the upper end of the 95 % interval of MD."),
    ):
        if f"{name}_low" in extra:
            width = extra[f"{name}_high"] - extra[f"{name}_low"]
            yield Map(f"{name}-width", title, width, scale, words, _range(width, scale.one))
    if "prior_sd" in extra:
        yield Map(
            "prior-sd",
            "Spread of the unmeasured part",
            extra["prior_sd"],
            PRIOR_SD,
            "How far the samples differ in what no measured direction sees.",
            _range(extra["prior_sd"], 1e-3),
        )
    if "consistency" in extra:
        yield Map(
            "consistency",
            "Consistency with the scan",
            extra["consistency"],
            CONSISTENCY,
            "Residual of the measured signals over the noise. About 1: only noise is left. Well above 1: the tensor "
            "contradicts the data. Near 0: it reproduces them, noise included.",
            _range(extra["consistency"]),
        )
    yield Map(
        "spd-touched",
        "Not positive definite",
        _two_colours(extra["spd_touched"]),
        None,
        "Bright where the method's own tensor had an eigenvalue below the floor, before it was raised.",
        f"{result.spd_touched_share:.2%} of the brain.",
    )


def tensor_images(
    packed: Float[ndarray, "x y z 6"], *, space: Space, mask: MaskImage
) -> tuple[Image, Image, Float[ndarray, "x y z 3"]]:
    """FA, MD and colour FA of a tensor in image axes; colours in scanner axes, not a number outside the mask."""
    inside = torch.from_numpy(tensor_to_frame(packed[mask].astype(np.float64), space, target="scanner"))
    return (
        _whole(fractional_anisotropy(inside), mask),
        _whole(mean_diffusivity(inside), mask),
        _whole(colour_fa(inside), mask),
    )


def component_images(packed: Float[ndarray, "x y z 6"], *, space: Space, mask: MaskImage) -> Float[ndarray, "x y z 6"]:
    """The components in scanner axes, not a number outside the mask."""
    inside = tensor_to_frame(packed[mask].astype(np.float64), space, target="scanner")
    return _whole(torch.from_numpy(inside), mask)


def outside_unknown(image: Float[ndarray, "x y z *n"], mask: MaskImage) -> Float[ndarray, "x y z *n"]:
    """Outside the mask there is no value, which a colour would hide."""
    return _whole(torch.from_numpy(image[mask]), mask)


def _whole(values: torch.Tensor, mask: MaskImage) -> Float[ndarray, "x y z *n"]:
    image = np.full((*mask.shape, *values.shape[1:]), np.nan, dtype=np.float32)
    image[mask] = values.numpy()
    return image


def _two_colours(image: Image) -> Float[ndarray, "x y z 3"]:
    left, touched = (np.array(colour, dtype=np.float32) for colour in TOUCHED_COLOURS)
    coloured = np.where(image[..., None] >= 0.5, touched, left)
    return np.where(np.isnan(image)[..., None], np.float32(0), coloured)


def _range(image: Image, one: float = 1.0) -> str:
    low, middle, high = np.nanpercentile(image, [5, 50, 95]) / one
    unit = " in 10⁻³ mm²/s" if one == 1e-3 else ""
    return f"Median inside the brain {middle:.2f}, 5 to 95 %: {low:.2f} to {high:.2f}{unit}."
