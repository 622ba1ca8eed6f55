"""What a reconstruction gives: arrays on the scan's grid, and what is known about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from tensorldm.components import Frame
from tensorldm.dti.eigen import eigen
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.map_files import MAPS
from tensorldm.imaging.volume import Space
from tensorldm.shapes import Affine, Image, MaskImage

ASKED_OFTEN: Final = ("fa", "md")
"""Maps that files, summary, picture and page all want: computed once."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A tensor field with its maps; every array is on one grid and zero outside the mask."""

    tensor: Float[ndarray, "x y z 6"]
    """xx yy zz xy xz yz in mm²/s, in image axes (the array's own i, j, k)."""
    space: Space
    mask: MaskImage
    s0: Image
    """Mean of the b=0 volumes that were used, in the scanner's units."""
    extra: Mapping[str, Image]
    """Maps that are no function of the tensor: ``consistency``, ``prior_share``, ``spd_touched``; from several samples
    also ``fa_mean``, ``fa_low``, ``fa_high``, ``md_low``, ``md_high``, ``v1_cone`` (degrees) and ``prior_sd``."""
    volumes: tuple[int, ...]
    """Indices of the volumes that were used, b=0 first."""
    bvals: tuple[float, ...]
    angles_degrees: tuple[float, ...]
    """Of the used volumes nearest to x, y and z, to their axes."""
    spd_touched_share: float
    """Share of the mask where the method's own tensor was not positive definite."""
    warnings: tuple[str, ...]
    notes: Mapping[str, Any]
    """Method, model, sampling: what the sidecar says."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    _kept: dict[str, Image] = field(default_factory=dict, init=False, repr=False)

    @property
    def affine(self) -> Affine:
        """From voxel indices to millimetres in the world (RAS)."""
        return self.space.affine

    @property
    def fa(self) -> Image:
        """Fractional anisotropy."""
        return self.map("fa")

    @property
    def md(self) -> Image:
        """Mean diffusivity, mm²/s."""
        return self.map("md")

    @property
    def v1(self) -> Float[ndarray, "x y z 3"]:
        """Principal direction in scanner (RAS) axes."""
        return self.map("v1")

    def map(self, name: str) -> Float[ndarray, "x y z *n"]:
        """A map of the tensor by name: fa, md, rd, ad, colour_fa, v1; directions and colours in scanner axes."""
        if name not in self._kept:
            formula, _ = MAPS[name]
            image = self.scatter(formula(self.inside("scanner")))
            if name not in ASKED_OFTEN:
                return image
            self._kept[name] = image
        return self._kept[name].copy()  # the caller's own, to change as they like

    def eigen(self, frame: Frame = "scanner") -> tuple[Float[ndarray, "x y z 3"], Float[ndarray, "x y z 3 3"]]:
        """Eigenvalues in falling order, and eigenvectors in columns: ``vectors[..., :, 0]`` is v1."""
        values, vectors = eigen(self.inside(frame))
        return self.scatter(values), self.scatter(vectors)

    def inside(self, frame: Frame) -> Float[Tensor, "v 6"]:
        """Tensors of the mask's voxels in these axes, in double precision."""
        return torch.from_numpy(tensor_to_frame(self.tensor[self.mask].astype(np.float64), self.space, target=frame))

    def scatter(self, values: Float[Tensor, "v *n"]) -> Float[ndarray, "x y z *n"]:
        """Values of the mask's voxels on the grid, zero elsewhere."""
        image = np.zeros((*self.space.shape, *values.shape[1:]), dtype=np.float32)
        image[self.mask] = values.float().numpy()
        return image
