"""How far heads differ in shape, scale by scale: real heads from each other, virtual ones from the head behind them.

    python benchmarks/head_shapes.py --anatomies FOLDER --pairs 6 --preset clinical

FA maps of two heads are registered (affine by mutual information, then SyN by local correlation; DIPY's). What is left
of the displacement beyond its best affine fit is told as the standard deviation along an axis, in bands of width (FWHM
of the Gaussians between which a band lies). A registration invents some of it and misses some; so heads warped by
known fields are told twice, as drawn and as the same registration finds them. Two to five minutes a pair on one core.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch
from dipy.align.imaffine import AffineRegistration, MutualInformationMetric, transform_centers_of_mass
from dipy.align.imwarp import SymmetricDiffeomorphicRegistration
from dipy.align.metrics import CCMetric
from dipy.align.transforms import AffineTransform3D, RigidTransform3D
from scipy.ndimage import gaussian_filter

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.config import read_cohort
from tensorldm.cohort.deformation import coordinates, pull_back
from tensorldm.cohort.templates import TemplateSource
from tensorldm.cohort.warp import draw_velocity, velocity_grid, warp_anatomy
from tensorldm.dti.maps import fractional_anisotropy
from tensorldm.rng import generator

BANDS_MM = (12.0, 24.0, 48.0)
HEADER = ("", "all", *("below 12 mm", "12 to 24", "24 to 48", "above 48"), "correlation of FA, affine", "SyN")
STAND = torch.eye(3, 4, dtype=torch.float64)
"""The pose that changes nothing."""


def fa_of(anatomy: Anatomy) -> np.ndarray:
    fa = fractional_anisotropy(anatomy.components[0].movedim(0, -1)).nan_to_num()
    return (fa * anatomy.mask).numpy().astype(np.float32)


def register(still: Anatomy, moving: Anatomy) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Displacement in mm on the grid of ``still``, where both have a brain, and how alike FA is before and after."""
    to_world = np.diag([*still.voxel_size, 1.0])
    spaces = {"static_grid2world": to_world, "moving_grid2world": to_world}
    a, b = fa_of(still), fa_of(moving)
    affine = AffineRegistration(
        metric=MutualInformationMetric(nbins=32, sampling_proportion=20),
        level_iters=[100, 50, 20],
        sigmas=[3.0, 1.0, 0.0],
        factors=[4, 2, 1],
        verbosity=0,
    )
    start = transform_centers_of_mass(a, to_world, b, to_world).affine
    rigid = affine.optimize(a, b, RigidTransform3D(), None, starting_affine=start, **spaces)
    posed = affine.optimize(a, b, AffineTransform3D(), None, starting_affine=rigid.affine, **spaces)
    syn = SymmetricDiffeomorphicRegistration(CCMetric(3, sigma_diff=2.0, radius=3), level_iters=[40, 40, 15])
    syn.verbosity = 0
    found = syn.optimize(a, b, prealign=posed.affine, **spaces)
    both = still.mask.numpy() & (posed.transform(moving.mask.numpy().astype(np.float32)) > 0.5)
    alike = [float(np.corrcoef(a[both], image[both])[0, 1]) for image in (posed.transform(b), found.transform(b))]
    return np.asarray(found.forward), both, alike[0], alike[1]


def bands(displacement: np.ndarray, inside: np.ndarray, voxel_mm: float) -> list[float]:
    """Standard deviation along an axis: of all of it, then band by band from fine to coarse."""
    design = np.column_stack([np.argwhere(inside), np.ones(inside.sum())])
    moved = displacement[inside]
    rest = np.zeros((*inside.shape, 3))
    rest[inside] = moved - design @ np.linalg.lstsq(design, moved, rcond=None)[0]
    covered = inside.astype(float)
    finer, told = rest, [rest]
    for width in BANDS_MM:
        sigma = width / 2.3548 / voxel_mm
        share = np.maximum(gaussian_filter(covered, sigma), 1e-3)[..., None]
        coarser = gaussian_filter(rest, (sigma, sigma, sigma, 0)) / share
        told.append(finer - coarser)
        finer = coarser
    return [float(np.sqrt(np.mean(part[inside] ** 2))) for part in (*told, finer)]


def drawn_head(anatomy: Anatomy, preset: str, seed: int) -> tuple[Anatomy, np.ndarray]:
    """A head warped as the preset warps, in its own pose, and where each of its voxels looks, less its own place."""
    settings = read_cohort(preset, ()).settings.warp
    velocity = draw_velocity(anatomy, settings, generator=generator(seed, "shape"))
    shape = tuple(anatomy.s0.shape)
    warp = pull_back(
        STAND, velocity, velocity_voxel_size=velocity_grid(anatomy)[1], shape=shape, voxel_size=anatomy.voxel_size
    )
    own = coordinates(shape, anatomy.voxel_size, device=velocity.device)
    return warp_anatomy(anatomy, warp), (warp.positions - own).movedim(0, -1).numpy()


def line(name: str, values: list[float], alike: tuple[float, float] | None = None) -> str:
    told = [f"{value:.2f}" for value in (*values, *(alike or ()))] + ["", ""] * (alike is None)
    return f"| {name} | {' | '.join(told)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--anatomies", type=Path, required=True, help="folder of anatomies; one of each person is used")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--preset", default="clinical")
    parser.add_argument("--drawn", type=int, default=2, help="virtual heads")
    wanted = parser.parse_args()
    source = TemplateSource(wanted.anatomies, split="train", bundles=())
    persons = {source.load(name).source: name for name in source.names}
    heads = {person: source.load(name) for person, name in persons.items()}
    print("| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|")
    for a, b in itertools.islice(itertools.combinations(heads, 2), wanted.pairs):
        displacement, both, *alike = register(heads[a], heads[b])
        voxel_mm = heads[a].voxel_size[0]
        print(line(f"{a}, {b}", bands(displacement, both, voxel_mm), (alike[0], alike[1])), flush=True)
    for seed, (person, head) in zip(range(wanted.drawn), itertools.cycle(heads.items()), strict=False):
        virtual, known = drawn_head(head, wanted.preset, seed)
        print(line(f"{wanted.preset} {seed}, as drawn", bands(known, virtual.mask.numpy(), head.voxel_size[0])))
        displacement, both, *alike = register(virtual, head)
        found = bands(displacement, both, head.voxel_size[0])
        print(line(f"{wanted.preset} {seed}, as found from {person}", found, (alike[0], alike[1])), flush=True)


if __name__ == "__main__":
    main()
