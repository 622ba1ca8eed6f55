"""Maps of a tensor as images: FA, MD, RD, AD, colour FA and the principal direction.

Colours and directions are in scanner axes (red is left-right however the array is stored), as MRtrix3 writes them.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.dti.maps import (
    axial_diffusivity,
    colour_fa,
    fractional_anisotropy,
    mean_diffusivity,
    principal_direction,
    radial_diffusivity,
)
from tensorldm.imaging.atomic import write_json
from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.nifti import write_volume
from tensorldm.imaging.tensor_sidecar import UNITS, sidecar_path
from tensorldm.imaging.volume import Space, Volume
from tensorldm.shapes import MaskImage, Packed

DIFFUSIVITY: Final = {"Units": UNITS}
ANISOTROPY: Final = {"Units": "1"}
DIRECTION: Final = {"Units": "1", "Frame": "scanner", "Components": ["x (right)", "y (front)", "z (top)"]}

MAPS: Final[Mapping[str, tuple[Callable[[Packed], torch.Tensor], Mapping[str, Any]]]] = MappingProxyType(
    {
        "fa": (fractional_anisotropy, ANISOTROPY),
        "md": (mean_diffusivity, DIFFUSIVITY),
        "rd": (radial_diffusivity, DIFFUSIVITY),
        "ad": (axial_diffusivity, DIFFUSIVITY),
        "colour_fa": (colour_fa, DIRECTION),
        "v1": (principal_direction, DIRECTION),
    }
)
"""Each map's formula, and what its sidecar says."""


def write_maps(folder: Path, packed: Float[ndarray, "x y z 6"], *, space: Space, mask: MaskImage) -> list[Path]:
    """Write every map of a tensor in image axes, zero outside the mask; gives the paths written."""
    # In double precision and in scanner axes from the start: directions and colours then need no second turn.
    inside = torch.from_numpy(tensor_to_frame(packed[mask].astype(np.float64), space, target="scanner"))
    written = []
    for name, (formula, note) in MAPS.items():
        values = formula(inside).numpy().astype(np.float32)
        image = np.zeros((*space.shape, *values.shape[1:]), dtype=np.float32)
        image[mask] = values
        path = folder / f"{name}.nii.gz"
        write_json(sidecar_path(path), dict(note))
        write_volume(path, Volume(image, space))
        written.append(path)
    return written
