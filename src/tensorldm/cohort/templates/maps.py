"""Converters for folders of tensors, or of FA with principal directions.

``tensor.nii.gz``: six volumes; FSL's order and frame unless a sidecar says otherwise. ``dti_FA`` with ``dti_V1`` or
``dti_eigvec1``: an axially symmetric tensor, in FSL's frame, with ``dti_MD``, ``dti_S0`` or ``refb0``, and ``mask``
where they are there. Without MD, tissue has tissue's and fluid is put where ``fluid`` assumes it.
"""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import ndimage

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.cylinders import axial_and_radial, cylinder
from tensorldm.cohort.templates import tissue
from tensorldm.cohort.templates.assembling import from_tensors
from tensorldm.cohort.templates.fluid import assumed_fluid
from tensorldm.cohort.templates.placing import place
from tensorldm.cohort.templates.request import Request
from tensorldm.errors import DataError
from tensorldm.imaging.frames import directions_to_frame
from tensorldm.imaging.mask import read_brain_mask
from tensorldm.imaging.nifti import read_volume
from tensorldm.imaging.tensor_files import read_tensor
from tensorldm.imaging.tensor_sidecar import read_convention
from tensorldm.imaging.volume import Volume
from tensorldm.shapes import MaskImage

SOLID = tissue.SOLID_MM2_PER_S
RIM_MM = 3.0
LARGEST_FA = 0.95
"""Noise at the rim gives FA up to 1.2, which no tensor has."""


def is_tensor(folder: Path) -> bool:
    """Whether a folder holds a tensor image."""
    return (folder / "tensor.nii.gz").is_file()


def convert_tensor(folder: Path, request: Request) -> Anatomy:
    """An anatomy from a tensor image."""
    path = folder / "tensor.nii.gz"
    volume = read_tensor(path, convention=read_convention(path, default="fsl"))
    packed = finite(volume.data)
    mask = brain_of(packed[..., :3].sum(axis=-1) > 0, path, voxel_mm=min(volume.space.voxel_size))
    placement = place(volume.space, mask, grid=request.grid)
    return from_tensors(request, placement.tensors(packed), b0=None, placement=placement)


def is_maps(folder: Path) -> bool:
    """Whether a folder holds FA and principal directions."""
    return (folder / "dti_FA.nii.gz").is_file() and _first(folder, "dti_V1", "dti_eigvec1") is not None


def convert_maps(folder: Path, request: Request) -> Anatomy:
    """An anatomy from FA and principal directions."""
    path = folder / "dti_FA.nii.gz"
    fa = read_volume(path)
    anisotropy = np.clip(finite(fa.data), 0, LARGEST_FA)
    mask = brain_of(anisotropy > 0, path, voxel_mm=min(fa.space.voxel_size))
    if (folder / "mask.nii.gz").is_file():
        mask &= read_brain_mask(folder / "mask.nii.gz", fa.space)
    vectors = directions_to_frame(
        _matching(folder, "dti_V1", "dti_eigvec1", like=fa), fa.space, source="fsl", target="image"
    )
    known = _first(folder, "dti_MD") is not None
    md = np.maximum(_matching(folder, "dti_MD", like=fa), 0.1e-3) if known else np.full_like(anisotropy, SOLID)
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit = np.where(length > 0.5, vectors / np.maximum(length, 0.5), np.array([0, 0, 1], dtype=vectors.dtype))
    axial, radial = axial_and_radial(torch.from_numpy(anisotropy), torch.from_numpy(md))
    packed = cylinder(torch.from_numpy(unit.astype(np.float32)), axial, radial=radial)
    placement = place(fa.space, mask, grid=request.grid)
    bright = _first(folder, "dti_S0", "refb0")
    b0 = placement.scalars(finite(read_volume(bright).data)) if bright else None
    placed = placement.tensors(packed.numpy())
    if not known:
        fluid = assumed_fluid(placement.scalars(anisotropy), placement.mask, voxel_mm=request.grid.voxel_mm)
        placed = tissue.with_fluid(placed, fluid)
    return from_tensors(request, placed, b0=b0, placement=placement)


def finite(data: Float[ndarray, "*n"]) -> Float[ndarray, "*n"]:
    """Background that a program left as NaN is zero."""
    return np.asarray(np.nan_to_num(data, nan=0.0, posinf=0.0, neginf=0.0))


def brain_of(inside: MaskImage, path: Path, *, voxel_mm: float) -> MaskImage:
    """The largest part of a map's support, holes filled, without its outermost 3 mm, which are mostly noise."""
    parts, count = ndimage.label(inside)
    if count == 0:
        raise DataError(f"{path}: no voxel is above zero. Give a map of a brain.")
    largest = parts == 1 + np.bincount(parts.ravel())[1:].argmax()
    depth = max(1, round(RIM_MM / voxel_mm))
    return np.asarray(ndimage.binary_erosion(ndimage.binary_fill_holes(largest), iterations=depth, border_value=1))


def _matching(folder: Path, *names: str, like: Volume) -> Float[ndarray, "x y z *n"]:
    """The first of several files that is there, on the same grid."""
    path = _first(folder, *names)
    assert path is not None, "looked for before"
    volume = read_volume(path)
    if not volume.space.same_grid(like.space):
        raise DataError(f"{path}: lies on another grid than dti_FA.nii.gz. Give maps of one scan.")
    return finite(volume.data)


def _first(folder: Path, *names: str) -> Path | None:
    return next((path for name in names if (path := folder / f"{name}.nii.gz").is_file()), None)
