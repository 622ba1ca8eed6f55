"""What the scanner is asked to do: gradients, b-values, voxels, noise and motion.

Directions are unit vectors in image axes, zero for b=0. Axes: n volume.
"""

from dataclasses import dataclass, field, replace
from importlib.resources import files
from math import pi

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from tensorldm.cohort.axes import Size
from tensorldm.cohort.clinical import ArtefactSettings, SchemeSettings
from tensorldm.cohort.directions import axis_triad, spread_directions
from tensorldm.cohort.draws import any_rotation, uniform, whole
from tensorldm.cohort.scheme import complete, draw_input, draw_total, log_even, log_even_count
from tensorldm.cohort.settings import ProtocolSettings
from tensorldm.dti.axes import nearest_to_axes
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.errors import DataError
from tensorldm.shapes import BVals, Directions

HCP_B0S, HCP_DIRECTIONS, HCP_BVAL = 18, 90, 1000.0
"""The counts of the Human Connectome Project's b=1000 shell. The directions are our own."""
HCP_SCHEME = "b0_18_b1000_90.txt"
LEAST_BLUR_MM, BLUR_STEP_MM = 1.25, 0.25
OFFSET_MM = 1.0
"""Half a voxel: where the head comes to lie on the grid of a scan whose volumes do not agree."""
PHASE_LEFT_RIGHT = 0.2
"""Share of distorted scans with phase encoding from left to right; front-back is the rule."""


@dataclass(frozen=True)
class Distortion:
    """Shifts along the phase-encoding axis: of each weighted volume, and the smooth one that all volumes share."""

    eddy_mm: float = 0.0
    """Standard deviation 80 mm from the centre."""
    shared_mm: float = 0.0
    spacing_mm: float = 50.0
    axis: int = 1
    """0: left-right, 1: front-back."""

    @property
    def acts(self) -> bool:
        """Whether there is any."""
        return self.eddy_mm > 0 or self.shared_mm > 0


@dataclass(frozen=True)
class Protocol:
    """One acquisition."""

    bvals: BVals
    directions: Directions
    sparse: tuple[int, ...]
    """The volumes of the sparse input: first b=0, then the weighted ones; in the paper those nearest to x, y and z."""
    mean_b0: bool = False
    """Whether the mean of all b=0s takes the place of the first in the sparse input."""
    voxel_size: Size | None = None
    """mm; None keeps the anatomy's grid."""
    slice_thickness: float | None = None
    """mm along z; None: as the voxels."""
    blur_fwhm: float = 0.0
    """mm, beyond the voxel itself."""
    smoothing_fwhm: float = 0.0
    """mm; a blur after the noise, on the scan's own grid."""
    snr: float = 30.0
    """Mean b=0 signal of white matter over the noise's standard deviation in one real channel; inf: no noise."""
    coils: int = 1
    motion_degrees: float = 0.0
    motion_mm: float = 0.0
    offset_mm: float = 0.0
    """Largest shift along each axis that all volumes share."""
    nonlinearity: float = 0.0
    """Relative deviation of the gradients at 80 mm from the centre of the grid."""
    distortion: Distortion = field(default_factory=Distortion)

    @property
    def keeps_the_grid(self) -> bool:
        """Whether each voxel's signal comes from that voxel of the anatomy alone."""
        return not self.resamples and not self.moves

    @property
    def resamples(self) -> bool:
        """Whether voxels collect the signal of several voxels of the anatomy."""
        return self.voxel_size is not None or self.slice_thickness is not None or self.blur_fwhm > 0

    @property
    def moves(self) -> bool:
        """Whether voxels show other places than their own: the head moves, or the image is distorted."""
        return self.motion_degrees > 0 or self.motion_mm > 0 or self.distortion.acts


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


def draw_protocol(
    settings: ProtocolSettings,
    generator: Generator,
    *,
    num_directions: int = 3,
    artefacts: ArtefactSettings | None = None,
) -> Protocol:
    """One acquisition within the settings' ranges; ``num_directions`` of the input count where there is a scheme."""
    if settings.scheme is not None:
        protocol = _draw_clinical(settings, settings.scheme, generator, count=num_directions)
    else:
        protocol = _draw_research(settings, generator)
    return protocol if artefacts is None else _with_artefacts(protocol, artefacts, generator)


def _draw_research(settings: ProtocolSettings, generator: Generator) -> Protocol:
    b0s, count = whole(generator, settings.b0s), whole(generator, settings.directions)
    bval = uniform(generator, settings.bval)
    turn = any_rotation(generator) if settings.turn else torch.eye(3, dtype=torch.float64)
    if settings.tilt_degrees is None:
        bvals, directions = _table(b0s, count, bval)
        directions = directions @ turn.T
        sparse: tuple[int, ...] = sparse_volumes(bvals, directions)
    else:
        tilt = uniform(generator, settings.tilt_degrees)
        triad = axis_triad(tilt, azimuths=2 * pi * torch.rand(3, generator=generator, dtype=torch.float64))
        rest = spread_directions(count)[3:] @ turn.T
        bvals, directions = shell(torch.cat([triad, rest]), b0s=b0s, bval=bval)
        sparse = _volumes_of(triad, directions)
    blur, snr = uniform(generator, settings.blur_mm), uniform(generator, settings.snr)
    return _protocol(settings, bvals, directions, sparse=sparse, blur_fwhm=blur, snr=snr)


def _draw_clinical(settings: ProtocolSettings, scheme: SchemeSettings, generator: Generator, *, count: int) -> Protocol:
    b0s, total = log_even_count(generator, settings.b0s), draw_total(generator, settings.directions)
    usual = uniform(generator, (0.0, 1.0)) < scheme.usual
    bval = uniform(generator, scheme.usual_bval if usual else settings.bval)
    given = draw_input(scheme, count, generator=generator)
    bvals, directions = shell(complete(given, total, generator=generator), b0s=b0s, bval=bval)
    blur, snr = _stepped_blur(uniform(generator, settings.blur_mm)), log_even(generator, settings.snr)
    several = uniform(generator, (0.0, 1.0)) < scheme.several
    mean_b0 = uniform(generator, (0.0, 1.0)) < scheme.mean_b0
    protocol = _protocol(settings, bvals, directions, sparse=_volumes_of(given, directions), blur_fwhm=blur, snr=snr)
    return replace(protocol, coils=scheme.several_coils if several else settings.coils, mean_b0=mean_b0)


def _stepped_blur(fwhm_mm: float) -> float:
    """Steps, because their matrices are kept; too narrow a Gaussian does nothing to voxels of 2 mm."""
    return 0.0 if fwhm_mm < LEAST_BLUR_MM else BLUR_STEP_MM * round(fwhm_mm / BLUR_STEP_MM)


def _protocol(
    settings: ProtocolSettings,
    bvals: BVals,
    directions: Directions,
    *,
    sparse: tuple[int, ...],
    blur_fwhm: float,
    snr: float,
) -> Protocol:
    return Protocol(
        bvals=bvals,
        directions=directions,
        sparse=sparse,
        voxel_size=settings.voxel_mm,
        slice_thickness=settings.slice_thickness_mm,
        blur_fwhm=blur_fwhm,
        snr=snr,
        coils=settings.coils,
        motion_degrees=settings.motion_degrees,
        motion_mm=settings.motion_mm,
        nonlinearity=settings.nonlinearity,
    )


def _with_artefacts(protocol: Protocol, settings: ArtefactSettings, generator: Generator) -> Protocol:
    """Every number is drawn whether it is used or not, so that one share can change without the others."""
    if not settings.act_on_images:
        return protocol
    drawn = torch.rand(5, generator=generator, dtype=torch.float64).tolist()
    shift, eddy = uniform(generator, settings.misalignment_mm), uniform(generator, settings.eddy_mm)
    shared, in_plane = uniform(generator, settings.distortion_mm), uniform(generator, settings.in_plane_mm)
    thick = uniform(generator, settings.slice_mm)
    if drawn[0] < settings.misaligned:
        turn = settings.misalignment_degrees_per_mm * shift
        protocol = replace(protocol, motion_mm=shift, motion_degrees=turn, offset_mm=OFFSET_MM)
    if drawn[1] < settings.coarse:
        protocol = replace(protocol, voxel_size=(in_plane, in_plane, thick))
    distortion = Distortion(
        eddy_mm=eddy if drawn[2] < settings.eddy else 0.0,
        shared_mm=shared if drawn[3] < settings.distorted else 0.0,
        spacing_mm=settings.distortion_spacing_mm,
        axis=0 if drawn[4] < PHASE_LEFT_RIGHT else 1,
    )
    interpolated = uniform(generator, (0.0, 1.0)) < settings.interpolated
    smoothing = _stepped_blur(uniform(generator, settings.interpolated_mm)) if interpolated else 0.0
    return replace(protocol, distortion=distortion, smoothing_fwhm=smoothing)


def _table(b0s: int, count: int, bval: float) -> tuple[BVals, Directions]:
    if (b0s, count) != (HCP_B0S, HCP_DIRECTIONS):
        return shell(spread_directions(count), b0s=b0s, bval=bval)
    bvals, directions = hcp_style()
    return bvals * (bval / HCP_BVAL), directions


def _volumes_of(given: Float[Tensor, "m 3"], directions: Directions) -> tuple[int, ...]:
    """The first b=0, and where given directions stand in the table."""
    return 0, *(int((directions @ vector).argmax()) for vector in given)
