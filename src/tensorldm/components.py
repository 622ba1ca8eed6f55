"""The six components of the diffusion tensor: order, names, groups, and the orders other programs use.

Inside the package component d = 0..5 is always xx yy zz xy xz yz (the paper's order, and MRtrix3's).
"""

from dataclasses import dataclass
from typing import Final, Literal

COMPONENTS: Final = ("xx", "yy", "zz", "xy", "xz", "yz")
NUM_COMPONENTS: Final = 6
ROWS: Final = (0, 1, 2, 0, 0, 1)
"""Row i of component d in the 3×3 matrix."""
COLUMNS: Final = (0, 1, 2, 1, 2, 2)
"""Column j of component d in the 3×3 matrix."""
DIAGONAL: Final = (0, 1, 2)
OFF_DIAGONAL: Final = (3, 4, 5)

Frame = Literal["scanner", "image", "fsl"]
"""Axes that a tensor's components refer to.

scanner: the RAS world axes of the affine. image: the array's own axes i, j, k.
fsl: the array's axes with the first one flipped when det(affine) > 0, the frame of `.bvec` files.
"""


@dataclass(frozen=True)
class Convention:
    """How a program stores a tensor image: component order, frame and array shape together."""

    name: str
    order: tuple[str, ...]
    frame: Frame
    five_dimensional: bool

    @property
    def from_package(self) -> tuple[int, ...]:
        """Package index of each stored component: ``stored = packed[..., from_package]``."""
        return tuple(COMPONENTS.index(name) for name in self.order)

    @property
    def to_package(self) -> tuple[int, ...]:
        """Stored index of each package component: ``packed = stored[..., to_package]``."""
        return tuple(self.order.index(name) for name in COMPONENTS)


CONVENTIONS: Final = {
    convention.name: convention
    for convention in (
        Convention("mrtrix", COMPONENTS, "scanner", five_dimensional=False),
        Convention("fsl", ("xx", "xy", "xz", "yy", "yz", "zz"), "fsl", five_dimensional=False),
        Convention("dipy", ("xx", "xy", "yy", "xz", "yz", "zz"), "image", five_dimensional=False),
        Convention("nifti", ("xx", "xy", "yy", "xz", "yz", "zz"), "scanner", five_dimensional=True),
    )
}
"""``nifti`` is the NIFTI_INTENT_SYMMATRIX (1005) layout: x y z 1 6, lower triangle by rows."""
