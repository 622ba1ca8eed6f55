"""Reconstruction from arrays: what `tensorldm.reconstruct` is. It reads a model's folder and writes nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from tensorldm.errors import DataError
from tensorldm.imaging.gradients import GradientTable
from tensorldm.imaging.volume import Space, Volume
from tensorldm.reconstruct.choice import Choice, choose, pick_device
from tensorldm.reconstruct.pipeline import Stopwatch, reconstruct_series
from tensorldm.reconstruct.plan import make_plan
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings


def reconstruct(
    dwi: Shaped[ndarray, "x y z n"],
    affine: Float[ndarray, "4 4"],
    *,
    bvals: Shaped[ndarray, " b"],
    bvecs: Shaped[ndarray, "rows columns"],
    mask: Shaped[ndarray, "..."] | None = None,
    model: Path | None = None,
    method: str | None = None,
    choice: Choice | None = None,
    device: str = "auto",
    settings: Settings | None = None,
) -> Reconstruction:
    """A diffusion tensor from a series in memory.

    ``bvecs`` are FSL's (voxel axes, the first one mirrored where the affine's determinant is positive), as `.bvec`
    files hold them. ``mask`` is the brain where it is above 0.5, as in files. ``model`` is a bundle's folder,
    ``method`` the name of a closed form; without either the shipped model is used. ``choice`` stands in for both:
    ``baselines.learned.choice.choose`` makes one of a rival's bundle.
    Warnings are in the result. Nothing is written to the disk.
    """
    settings = settings or Settings()
    dwi = np.asarray(dwi)  # also what nibabel has not read yet
    space = _space(dwi, np.asarray(affine, dtype=np.float64))
    gradients = _table(np.asarray(bvals, dtype=np.float64), np.asarray(bvecs, dtype=np.float64), dwi, space)
    if choice is None:
        choice = choose(model=model, method=method)
    plan = make_plan(space, gradients, traits=choice.traits, settings=settings)
    if choice.word is not None:
        plan = replace(plan, warnings=(choice.word, *plan.warnings))
    data = np.ascontiguousarray(dwi[..., list(plan.read)], dtype=np.float32)
    if not np.isfinite(data).all():
        raise DataError("the series holds NaN or infinite values. Leave those volumes out, or load the series again.")
    brain = None if mask is None else np.asarray(mask) > 0.5
    if brain is not None and (brain.shape != space.shape or not brain.any()):
        raise DataError(
            f"a mask of shape {brain.shape} and {int(brain.sum())} voxels does not fit a series of {space.shape}. "
            "Give a mask of the brain on the same grid, or none."
        )
    engine = choice.load(settings, device=pick_device(device))
    return reconstruct_series(
        Volume(data, space), plan, mask=brain, engine=engine, settings=settings, watch=Stopwatch(lambda _: None)
    )


def _space(dwi: Shaped[ndarray, "..."], affine: Float[ndarray, "..."]) -> Space:
    if dwi.ndim != 4 or np.iscomplexobj(dwi):
        raise DataError(
            f"an array of shape {dwi.shape} and type {dwi.dtype}, expected a 4D series of magnitudes, volumes last."
        )
    if affine.shape != (4, 4) or not np.isfinite(affine).all() or np.isclose(np.linalg.det(affine), 0):
        raise DataError(
            "the affine is no invertible 4 × 4 matrix. Give that of the image, such as nibabel's `.affine`."
        )
    return Space((dwi.shape[0], dwi.shape[1], dwi.shape[2]), affine)


def _table(
    bvals: Float[ndarray, "..."], bvecs: Float[ndarray, "..."], dwi: Shaped[ndarray, "x y z n"], space: Space
) -> GradientTable:
    count = dwi.shape[-1]
    if bvals.shape != (count,) or bvecs.shape != (count, 3):
        turned = " The vectors are transposed: give `bvecs.T`." if bvecs.shape == (3, count) else ""
        raise DataError(
            f"{count} volumes, b-values of shape {bvals.shape}, vectors of shape {bvecs.shape}. Give one b-value and "
            f"one row of three numbers per volume.{turned}"
        )
    lengths = np.linalg.norm(bvecs, axis=1, keepdims=True)
    unit = np.divide(bvecs, lengths, out=np.zeros_like(bvecs), where=lengths > 0)
    try:
        return GradientTable.from_fsl(bvals, unit, space=space)
    except ValueError as error:
        raise DataError(f"these are no gradients: {error}. Give one b-value and one vector per volume.") from error
