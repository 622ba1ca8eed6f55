"""One reconstruction at a glance: b=0, FA, MD, colour FA, how sure the directions are, and how much is the prior's."""

from pathlib import Path

from jaxtyping import Float
from numpy import ndarray

from tensorldm.imaging.volume import Space
from tensorldm.report.figures import Panel, b0_panel, draw_panels, tensor_panels
from tensorldm.report.result_maps import outside_unknown
from tensorldm.shapes import Image, MaskImage

WIDEST_CONE_DEGREES = 90.0
SINGLE_RESULT = "a single result, not several samples: there is no v1 cone"
CONE_WORDS = (
    "95 % cone of v1: the true fibre direction lies within this angle of the one shown; 90° is not known at all"
)
SHARE_WORDS = (
    "prior share: how much of the anisotropy shown comes from the method and not from the scan, 0 none to 1 all"
)


def draw_reconstruction(
    path: Path,
    b0: Image,
    packed: Float[ndarray, "x y z 6"],
    *,
    space: Space,
    mask: MaskImage,
    prior_share: Image,
    v1_cone_degrees: Image | None,
) -> None:
    """Draw three planes of one tensor (image axes, mm²/s) and its two maps of doubt as a PNG.

    ``v1_cone_degrees`` is None where there is a single result; its column is then left out, and the picture says why.
    """
    panels = [b0_panel(b0, mask), *tensor_panels(packed, space=space, mask=mask)]
    if v1_cone_degrees is not None:
        cone = outside_unknown(v1_cone_degrees, mask)
        panels.append(Panel("95 % cone of v1", cone, WIDEST_CONE_DEGREES, colours="magma", unit="°"))
    panels.append(Panel("prior share", outside_unknown(prior_share, mask), 1.0, colours="viridis", unit=""))
    cone_words = SINGLE_RESULT if v1_cone_degrees is None else CONE_WORDS
    draw_panels(path, panels, space=space, mask=mask, remark=f"{cone_words}\n{SHARE_WORDS}")
