"""What the scanner is asked to do: gradients, b-values, voxels, noise and motion.

Directions are unit vectors in image axes, zero for b=0. Axes: n volume.
"""

from dataclasses import dataclass
from importlib.resources import files
from math import pi

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.axes import Size
from tensorldm.cohort.directions import axis_triad, spread_directions
from tensorldm.cohort.draws import any_rotation, uniform, whole
from tensorldm.cohort.settings import ProtocolSettings
from tensorldm.dti.axes import nearest_to_axes
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.errors import DataError
from tensorldm.shapes import BVals, Directions

HCP_B0S, HCP_DIRECTIONS, HCP_BVAL = 18, 90, 1000.0
"""The counts of the Human Connectome Project's b=1000 shell. The directions are our own."""
HCP_SCHEME = "b0_18_b1000_90.txt"


@dataclass(frozen=True)
class Protocol:
    """One acquisition."""

    bvals: BVals
    directions: Directions
    sparse: tuple[int, int, int, int]
    """The volumes of the sparse input: first b=0, then those nearest to x, y and z."""
    voxel_size: Size | None = None
    """mm; None keeps the anatomy's grid."""
    slice_thickness: float | None = None
    """mm along z; None: as the voxels."""
    blur_fwhm: float = 0.0
    """mm, beyond the voxel itself."""
    snr: float = 30.0
    """Mean b=0 signal of white matter over the noise's standard deviation in one real channel; inf: no noise."""
    coils: int = 1
    motion_degrees: float = 0.0
    motion_mm: float = 0.0
    nonlinearity: float = 0.0
    """Relative deviation of the gradients at 80 mm from the centre of the grid."""

    @property
    def keeps_the_grid(self) -> bool:
        """Whether each voxel's signal comes from that voxel of the anatomy alone."""
        return self.voxel_size is None and self.slice_thickness is None and self.blur_fwhm == 0 and not self.moves

    @property
    def moves(self) -> bool:
        """Whether the head moves between volumes."""
        return self.motion_degrees > 0 or self.motion_mm > 0


def hcp_style() -> tuple[BVals, Directions]:
    """The default table: 18 b=0 among 90 directions at b=1000, as shipped with the package."""
    text = files("tensorldm.cohort").joinpath("schemes", HCP_SCHEME).read_text(encoding="utf-8")
    rows = [[float(word) for word in line.split()] for line in text.splitlines() if not line.startswith("#")]
    table = torch.tensor(rows, dtype=torch.float64)
    return table[:, 3].contiguous(), table[:, :3].contiguous()


def shell(
    directions: Float[Tensor, "m 3"], *, b0s: int, bval: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, "n 3"]]:
    """A table of one shell with its b=0 volumes first and then spread evenly between the directions."""
    count = len(directions)
    table, bvals = [], []
    done = 0
    for index in range(b0s):
        table.append(torch.zeros(1, 3, dtype=directions.dtype))
        bvals.append(torch.zeros(1, dtype=directions.dtype))
        upto = (index + 1) * count // b0s
        table.append(directions[done:upto])
        bvals.append(torch.full((upto - done,), bval, dtype=directions.dtype))
        done = upto
    return torch.cat(bvals), torch.cat(table)


def sparse_volumes(bvals: BVals, directions: Directions) -> tuple[int, int, int, int]:
    """The first b=0 and the three weighted volumes nearest to x, y and z."""
    is_b0 = bvals <= B0_MAX_S_PER_MM2
    weighted = torch.nonzero(~is_b0).flatten()
    if not bool(is_b0.any()) or len(weighted) < 3:
        raise DataError(
            f"a protocol of {int(is_b0.sum())} b=0 and {len(weighted)} weighted volumes has no sparse input. "
            "Give at least one b=0 volume and three directions."
        )
    x, y, z = (int(weighted[index]) for index in nearest_to_axes(directions[weighted]).indices)
    return int(torch.nonzero(is_b0)[0]), x, y, z


def draw_protocol(settings: ProtocolSettings, generator: Generator) -> Protocol:
    """One acquisition within the settings' ranges."""
    b0s, count = whole(generator, settings.b0s), whole(generator, settings.directions)
    bval = uniform(generator, settings.bval)
    turn = any_rotation(generator) if settings.turn else torch.eye(3, dtype=torch.float64)
    if settings.tilt_degrees is None:
        bvals, directions = _table(b0s, count, bval)
        directions = directions @ turn.T
        sparse = sparse_volumes(bvals, directions)
    else:
        tilt = uniform(generator, settings.tilt_degrees)
        triad = axis_triad(tilt, azimuths=2 * pi * torch.rand(3, generator=generator, dtype=torch.float64))
        rest = spread_directions(count)[3:] @ turn.T
        bvals, directions = shell(torch.cat([triad, rest]), b0s=b0s, bval=bval)
        sparse = _volumes_of(triad, directions)
    return Protocol(
        bvals=bvals,
        directions=directions,
        sparse=sparse,
        voxel_size=settings.voxel_mm,
        slice_thickness=settings.slice_thickness_mm,
        blur_fwhm=uniform(generator, settings.blur_mm),
        snr=uniform(generator, settings.snr),
        coils=settings.coils,
        motion_degrees=settings.motion_degrees,
        motion_mm=settings.motion_mm,
        nonlinearity=settings.nonlinearity,
    )


def _table(b0s: int, count: int, bval: float) -> tuple[BVals, Directions]:
    if (b0s, count) != (HCP_B0S, HCP_DIRECTIONS):
        return shell(spread_directions(count), b0s=b0s, bval=bval)
    bvals, directions = hcp_style()
    return bvals * (bval / HCP_BVAL), directions


def _volumes_of(triad: Tensor, directions: Directions) -> tuple[int, int, int, int]:
    """The first b=0, and where the triad's directions stand in the table."""
    x, y, z = (int((directions @ vector).argmax()) for vector in triad)
    return 0, x, y, z
