"""Voxels that show other places than their own: a head that moves, eddy currents, and the field's own distortion.

A voxel at p of volume n shows what lies at Rᵀ(p + e (u(p) + a + b·p) - t): e is the phase-encoding axis, u the smooth
shift that all volumes share, a + b·p that of the eddy currents of volume n, R and t the head's pose. All of it but u
is affine, so one product of small matrices gives every position of every volume, and one interpolation the series.
Axes: n volume, v voxel, x y z space. Positions are mm from the centre of the grid.
"""

from dataclasses import dataclass
from math import radians

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor
from torch.nn.functional import grid_sample

from tensorldm.cohort.axes import Shape, Size
from tensorldm.cohort.deformation import coordinates, sample
from tensorldm.cohort.draws import rotation, smooth_field
from tensorldm.cohort.protocol import Distortion, Protocol
from tensorldm.dti.signal import B0_MAX_S_PER_MM2
from tensorldm.shapes import BVals, Directions

EDGE_MM = 80.0
"""Where the strength of eddy currents is stated: about the brain's edge."""
LEAST_COVER = 0.05
"""Share of a voxel that must be brain for its signal to be told."""
STRONGEST_SQUEEZE = (0.3, 2.5)
"""Brightness where the distortion stretches and squeezes; beyond it the image would be restored, not shown."""


@dataclass(frozen=True)
class Poses:
    """Where the head lies in each volume: turned by ``rotations``, then moved by ``translations`` (mm)."""

    rotations: Float[Tensor, "n 3 3"]
    translations: Float[Tensor, "n 3"]


@dataclass(frozen=True)
class Shifts:
    """Along the phase-encoding axis: offset (mm) and slope of each volume, and the field that all share (mm)."""

    axis: int
    offsets: Float[Tensor, " n"]
    slopes: Float[Tensor, "n 3"]
    shared: Float[Tensor, "x y z"]


def draw_poses(protocol: Protocol, generator: Generator) -> Poses:
    """A small turn and shift of the head for each volume but the first."""
    count = len(protocol.bvals)
    turns = radians(protocol.motion_degrees) * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    shifts = protocol.motion_mm * torch.randn(count, 3, generator=generator, dtype=torch.float64)
    turns[0], shifts[0] = 0, 0
    # Not at rest on the grid: every volume is then interpolated alike, and none is sharper than the others.
    offset = protocol.offset_mm * (2 * torch.rand(3, generator=generator, dtype=torch.float64) - 1)
    return Poses(rotation(turns), shifts + offset)


def seen_directions(directions: Directions, poses: Poses | None) -> Directions:
    """Gradients as the head sees them: when it turns one way, they turn the other."""
    if poses is None:
        return directions
    return torch.einsum("nji,nj->ni", poses.rotations, directions.double()).to(directions)


def draw_shifts(
    distortion: Distortion, bvals: BVals, *, shape: Shape, voxel_size: Size, generator: Generator, device: torch.device
) -> Shifts:
    """Eddy currents of the weighted volumes and the smooth field's distortion; zero where a strength is zero."""
    weighted = (bvals > B0_MAX_S_PER_MM2).double()[:, None]
    eddy = distortion.eddy_mm * weighted * torch.randn(len(bvals), 4, generator=generator, dtype=torch.float64)
    field = smooth_field(
        shape, voxel_size, spacing_mm=distortion.spacing_mm, channels=1, generator=generator, device=device
    )
    return Shifts(distortion.axis, eddy[:, 0] / 2, eddy[:, 1:] / EDGE_MM, distortion.shared_mm * field[0])


def displaced(
    volumes: Float[Tensor, "n x y z"],
    mask: Bool[Tensor, "x y z"],
    *,
    poses: Poses,
    shifts: Shifts | None = None,
    voxel_size: Size,
) -> tuple[Float[Tensor, "v n"], Bool[Tensor, "x y z"]]:
    """The series as it is seen, at the voxels of the brain as it is seen.

    What surrounds the brain is unknown, so a voxel's signal is that of the brain's share of it. Where a volume shows
    no brain, what the voxel shows without motion stands in.
    """
    x, y, z = mask.shape
    start = coordinates((x, y, z), voxel_size, device=volumes.device)
    brain = mask.to(volumes.dtype)[None, None]
    shared = torch.zeros_like(start[0]) if shifts is None else shifts.shared
    seen = mask
    if shifts is not None:
        pulled = start.clone()
        pulled[shifts.axis] += shared
        seen = sample(brain[0], pulled, voxel_size=voxel_size)[0] >= 0.5
    # Homogeneous coordinates of the seen voxels, the shared shift among them.
    known = torch.cat([start[:, seen], shared[seen][None], torch.ones_like(shared[seen])[None]])
    to_grid = _to_grid((x, y, z), voxel_size).to(start)
    moving = _positions(known, to_grid @ _affine(poses, shifts).to(start))
    still = _positions(known, to_grid @ _affine(_first(poses), _first_shift(shifts)).to(start))
    cover = _looked_up(brain.expand(len(moving), -1, -1, -1, -1), moving)
    lost = cover < LEAST_COVER
    places = torch.where(lost[..., None], still, moving)
    cover = torch.where(lost, _looked_up(brain, still), cover).clamp(min=LEAST_COVER)
    signal = _looked_up(volumes[:, None], places) / cover
    if shifts is not None:
        signal = signal * _squeeze(shifts, seen, voxel_size).to(signal)
    return signal.T, seen


def _affine(poses: Poses, shifts: Shifts | None) -> Float[Tensor, "n 3 5"]:
    """From (p, u, 1) to the place that is shown, in mm."""
    count = len(poses.rotations)
    identity = torch.eye(3, dtype=torch.float64).expand(count, 3, 3)
    along, axis = torch.zeros(3, dtype=torch.float64), 1 if shifts is None else shifts.axis
    along[axis] = 1.0
    slopes = poses.translations.new_zeros(count, 3) if shifts is None else shifts.slopes
    offsets = poses.translations.new_zeros(count) if shifts is None else shifts.offsets
    matrix = torch.cat(
        [
            identity + along[:, None] * slopes[:, None, :],
            along[:, None].expand(count, 3, 1),
            (along * offsets[:, None] - poses.translations)[..., None],
        ],
        dim=2,
    )
    return poses.rotations.mT @ matrix


def _first(poses: Poses) -> Poses:
    return Poses(poses.rotations[:1], poses.translations[:1])


def _first_shift(shifts: Shifts | None) -> Shifts | None:
    return None if shifts is None else Shifts(shifts.axis, shifts.offsets[:1], shifts.slopes[:1], shifts.shared)


def _to_grid(shape: Shape, voxel_size: Size) -> Float[Tensor, "3 3"]:
    """From mm to what `grid_sample` counts in: -1 to 1 between the outermost centres, the last axis first."""
    reach = [max(size - 1, 1) * voxel / 2 for size, voxel in zip(shape, voxel_size, strict=True)]
    return torch.diag(1 / torch.tensor(reach, dtype=torch.float64)).flip(0)


def _positions(known: Float[Tensor, "5 v"], affine: Float[Tensor, "n 3 5"]) -> Float[Tensor, "n v 3"]:
    return torch.matmul(known.T, affine.mT)


def _looked_up(volumes: Float[Tensor, "n 1 x y z"], places: Float[Tensor, "n v 3"]) -> Float[Tensor, "n v"]:
    grid = places[:, :, None, None]
    return grid_sample(volumes, grid, mode="bilinear", padding_mode="border", align_corners=True)[:, 0, :, 0, 0]


def _squeeze(shifts: Shifts, seen: Bool[Tensor, "x y z"], voxel_size: Size) -> Float[Tensor, "n v"]:
    """How much more tissue a voxel collects: 1 + ∂(shift)/∂(phase-encoding axis)."""
    along = voxel_size[shifts.axis]
    stretch = torch.gradient(shifts.shared, spacing=along, dim=shifts.axis)[0][seen]
    slopes = shifts.slopes[:, shifts.axis, None].to(stretch)
    low, high = STRONGEST_SQUEEZE
    return (1 + stretch + slopes).clamp(low, high)
