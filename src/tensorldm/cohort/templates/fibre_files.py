"""Converters for folders of fibre directions with weights.

``*.fib.gz``: DSI Studio's template, a MATLAB v4 file; its grid and its directions are LPS, three fibres with their
quantitative anisotropy (QA) and the isotropic part. ``FA`` with ``peaks`` (nine volumes, three directions in the
scanner's frame whose length is their weight), ``mask``, and ``bundles/`` with ``orientations/``.
"""

import io
import math
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.io
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy import ndimage

from tensorldm import bounded
from tensorldm.cohort.anatomy import Anatomy, Bundle
from tensorldm.cohort.templates.assembling import from_mixture
from tensorldm.cohort.templates.fluid import assumed_fluid
from tensorldm.cohort.templates.maps import LARGEST_FA, brain_of, finite
from tensorldm.cohort.templates.mixing import mixture
from tensorldm.cohort.templates.placing import Placement, place
from tensorldm.cohort.templates.request import Request
from tensorldm.cohort.templates.volumes import volume_of
from tensorldm.errors import DataError
from tensorldm.imaging.frames import directions_to_frame
from tensorldm.imaging.mask import read_brain_mask
from tensorldm.imaging.nifti import read_volume
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage

NUM_FIBRES: Final = 3
GREY_QA, FULL_QA = 0.05, 0.12
"""QA of grey matter, and the constant of (q - grey) / (q + full), the fibres' share of a voxel with QA q.

Chosen so that known places come out with their usual FA: splenium 0.75, thalamus 0.4, cortex 0.1.
"""
FLUID_ISO: Final = (0.93, 0.73)
"""The isotropic part relative to its surroundings (it is low in fluid) at no and at nothing but fluid."""
SURROUNDINGS_MM: Final = 14.0
LARGEST_BYTES: Final = 2**30
"""Of a template, unpacked; that of 1065 subjects takes 13 MiB at 2 mm and would take 110 at 1 mm."""


def is_fib(folder: Path) -> bool:
    """Whether a folder holds a fibre template of DSI Studio."""
    return any(folder.glob("*.fib.gz"))


def convert_fib(folder: Path, request: Request) -> Anatomy:
    """An anatomy from a group template; its bundles, masks without directions, are not taken."""
    path = next(iter(sorted(folder.glob("*.fib.gz"))))
    content = _read_matlab(path)
    shape = tuple(int(n) for n in content["dimension"].ravel())
    side = [float(n) for n in content["voxel_size"].ravel()]

    def volume(name: str) -> Any:
        return content[name].reshape(shape, order="F")

    vertices = content["odf_vertices"].T.astype(np.float32)
    directions = np.stack([vertices[volume(f"index{i}")] for i in range(NUM_FIBRES)], axis=-2)
    weights = np.stack([volume(f"fa{i}") for i in range(NUM_FIBRES)], axis=-1).astype(np.float32)
    mask = brain_of(weights[..., 0] > 0, path, voxel_mm=min(side))
    iso = volume("iso").astype(np.float32)
    # x to the left, y to the back, z to the top: directions are given along the array's own axes.
    space = Space(shape=(shape[0], shape[1], shape[2]), affine=np.diag([-side[0], -side[1], side[2], 1.0]))
    placement = place(space, mask, grid=request.grid)
    turned, amounts = placement.fibres(directions, weights)
    around = _surroundings(iso, mask, sigma=SURROUNDINGS_MM / side[0])
    relative = placement.scalars(iso / np.maximum(around, 1e-3))
    total = amounts.sum(dim=-1)
    none, full = FLUID_ISO
    fluid = ((none - relative) / (none - full)).clamp(0, 0.95) * (1 - (total / FULL_QA).clamp(0, 1))
    share = ((total - GREY_QA) / (total + FULL_QA)).clamp(0, 1)
    mixed = mixture(turned, amounts, fluid=fluid)
    return from_mixture(request, mixed, knob=share, placement=placement, bundles={})


def is_peaks(folder: Path) -> bool:
    """Whether a folder holds FA and fibre peaks."""
    return (folder / "FA.nii.gz").is_file() and (folder / "peaks.nii.gz").is_file()


def convert_peaks(folder: Path, request: Request) -> Anatomy:
    """An anatomy from FA and peaks, with the wanted bundles that it has."""
    path = folder / "peaks.nii.gz"
    peaks, fa = read_volume(path), read_volume(folder / "FA.nii.gz")
    if not fa.space.same_grid(peaks.space) or peaks.data.shape[3:] != (3 * NUM_FIBRES,):
        raise DataError(f"{path}: expected nine volumes on the grid of FA.nii.gz. Give the peaks of the same scan.")
    anisotropy = np.clip(finite(fa.data), 0, LARGEST_FA)
    mask = brain_of(anisotropy > 0, folder / "FA.nii.gz", voxel_mm=min(fa.space.voxel_size))
    if (folder / "mask.nii.gz").is_file():
        mask &= read_brain_mask(folder / "mask.nii.gz", fa.space)
    placement = place(peaks.space, mask, grid=request.grid)
    vectors = finite(peaks.data).reshape(*peaks.space.shape, NUM_FIBRES, 3)
    lengths = np.linalg.norm(vectors, axis=-1)
    unit = _in_image_axes(vectors / np.maximum(lengths, 1e-6)[..., None], peaks.space)
    directions, weights = placement.fibres(unit, lengths)
    placed = placement.scalars(anisotropy)
    fluid = assumed_fluid(placed, placement.mask, voxel_mm=request.grid.voxel_mm)
    mixed = mixture(directions, weights, fluid=fluid)
    return from_mixture(
        request,
        mixed,
        # Fluid has no anisotropy of its own: what a noisy map shows there is not to be matched by fibres.
        knob=mixed.knob_for(placed * (1 - fluid)),
        placement=placement,
        bundles={
            name: _read_bundle(folder, name, placement=placement)
            for name in request.bundles
            if (folder / "bundles" / f"{name}.nii.gz").is_file()
        },
    )


def _read_bundle(folder: Path, name: str, *, placement: Placement) -> Bundle:
    """A bundle where its mask and its orientations agree that it is."""
    member = read_volume(folder / "bundles" / f"{name}.nii.gz")
    vectors = finite(read_volume(folder / "orientations" / f"{name}.nii.gz").data)
    lengths = np.linalg.norm(vectors, axis=-1)
    unit = _in_image_axes(vectors / np.maximum(lengths, 1e-6)[..., None], member.space)
    present = ((member.data > 0.5) & (lengths > 0.5)).astype(np.float32)
    directions, amount = placement.fibres(unit[..., None, :], present[..., None])
    mask = torch.from_numpy(placement.mask)
    inside = amount[:, 0] >= 0.5
    return Bundle(mask=volume_of(inside, mask), directions=volume_of(directions[:, 0] * inside[:, None], mask))


def _surroundings(image: Float[ndarray, "x y z"], mask: MaskImage, *, sigma: float) -> Float[ndarray, "x y z"]:
    """A Gaussian mean over neighbours inside the mask."""
    weight = ndimage.gaussian_filter(mask.astype(np.float32), sigma)
    total = ndimage.gaussian_filter(np.where(mask, image, 0).astype(np.float32), sigma)
    return np.asarray(total / np.maximum(weight, 1e-3))


def _in_image_axes(vectors: Float[ndarray, "*n 3"], space: Space) -> Float[ndarray, "*n 3"]:
    return directions_to_frame(vectors, space, source="scanner", target="image")


def _read_matlab(path: Path) -> dict[str, Any]:
    try:
        stream: Any = io.BytesIO(bounded.unpack_gzip(path, limit=LARGEST_BYTES))
        content = scipy.io.loadmat(stream)
    except (OSError, EOFError, ValueError, TypeError, zlib.error) as error:
        raise DataError(f"{path}: not a fibre template of DSI Studio ({error}). Give the file as published.") from error
    missing = [
        name for name in ("dimension", "voxel_size", "odf_vertices", "fa0", "index0", "iso") if name not in content
    ]
    if missing:
        raise DataError(f"{path}: has no '{missing[0]}'. Give a fibre template of DSI Studio with three fibres.")
    voxels = [f"{kind}{i}" for kind in ("fa", "index") for i in range(NUM_FIBRES)] + ["iso"]
    sides = [int(side) for side in np.ravel(content["dimension"])]
    if len(sides) != 3 or any(np.size(content.get(name, 0)) != math.prod(sides) for name in voxels):
        raise DataError(f"{path}: its volumes are not of its dimensions {sides}. Give the file as published.")
    return content
