"""Where a tensor field differs from its reference, and how much of that is the field's own error.

    python benchmarks/where_errors_lie.py REFERENCE.nii.gz TENSOR.nii.gz [TENSOR.nii.gz ...]

By tissue (from the reference): share of the voxels and of the squared errors of off-diagonals and of FA. Then, in white
matter, covariances of voxels some steps apart: noise of a reference is hardly shared by voxels two steps apart, so what
the difference and the reference still have in common there, one over the other, is the share that the field misses.
The slope of reference on field is 1 where the field is neither too large nor too small on average.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy import ndarray
from scipy import ndimage

from tensorldm.components import OFF_DIAGONAL
from tensorldm.dti.maps import fractional_anisotropy, mean_diffusivity
from tensorldm.errors import DataError
from tensorldm.evaluation.evaluate import mask_of, name_methods
from tensorldm.imaging.nifti import read_mask
from tensorldm.imaging.tensor_files import read_convention, read_tensor

FLUID_MM2_PER_S = 1.5e-3
WHITE_FA = 0.25
STEPS = (1, 2, 3, 4)
TISSUES = ("mask's rim", "fluid", "white matter", "grey matter")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("fields", nargs="+", type=Path)
    parser.add_argument("--mask", type=Path)
    parser.add_argument("--convention", help="of files without a sidecar")
    wanted = parser.parse_args()
    reference = read(wanted.reference, wanted.convention)
    inside, _ = read_mask(mask_of(wanted.reference, wanted.mask))
    for path, name in zip(wanted.fields, name_methods(wanted.fields), strict=True):
        field = read(path, wanted.convention)
        if field.shape != reference.shape:
            raise DataError(f"{path}: {field.shape[:3]} voxels, the reference has {reference.shape[:3]}.")
        print(f"\n## {name}\n", to_table(*by_tissue(reference, field, inside)), "", sep="\n")
        print(to_table(*by_distance(reference, field, inside)), flush=True)


def read(path: Path, convention: str | None) -> ndarray:
    """Components in mm²/s, in image axes."""
    return np.asarray(read_tensor(path, convention=read_convention(path, default=convention)).data, dtype=np.float64)


def tissues(reference: ndarray, inside: ndarray) -> dict[str, ndarray]:
    """Masks that share the brain out; the rim is what touches the mask's outside."""
    packed = torch.from_numpy(reference)
    md, fa = mean_diffusivity(packed).numpy(), fractional_anisotropy(packed).numpy()
    within = ndimage.binary_erosion(inside)
    solid = within & (md <= FLUID_MM2_PER_S)
    return dict(
        zip(
            TISSUES,
            (inside & ~within, within & (md > FLUID_MM2_PER_S), solid & (fa > WHITE_FA), solid & (fa <= WHITE_FA)),
            strict=True,
        )
    )


def by_tissue(reference: ndarray, field: ndarray, inside: ndarray) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Shares of voxels and of squared errors, and mean FA."""
    headings = ("tissue", "voxels", "squared error of xy/xz/yz", "squared error of FA", "FA of the reference", "FA")
    off = (field - reference)[..., OFF_DIAGONAL[0] :] ** 2
    true_fa, fa = (fractional_anisotropy(torch.from_numpy(each)).numpy() for each in (reference, field))
    wrong = (fa - true_fa) ** 2
    rows = []
    for name, where in tissues(reference, inside).items():
        shares = "/".join(f"{share:.0%}" for share in off[where].sum(axis=0) / off[inside].sum(axis=0))
        rows.append(
            (
                name,
                f"{where.sum() / inside.sum():.0%}",
                shares,
                f"{wrong[where].sum() / wrong[inside].sum():.0%}",
                f"{true_fa[where].mean():.3f}",
                f"{fa[where].mean():.3f}",
            )
        )
    return headings, rows


def by_distance(reference: ndarray, field: ndarray, inside: ndarray) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Missed share at each distance, and slope, of every off-diagonal component in white matter."""
    headings = ("component", *(f"missed, {step} apart" for step in STEPS), "slope")
    smooth = ndimage.gaussian_filter(fractional_anisotropy(torch.from_numpy(reference)).numpy(), 1.0)
    white = ndimage.binary_erosion(inside, iterations=2) & (smooth > WHITE_FA)
    rows = []
    for component, name in zip(OFF_DIAGONAL, ("xy", "xz", "yz"), strict=True):
        true, found = reference[..., component], field[..., component]
        missed = [covariance(true - found, white, step) / covariance(true, white, step) for step in STEPS]
        slope = (true * found)[white].sum() / (found * found)[white].sum()
        rows.append((name, *(f"{share:.0%}" for share in missed), f"{slope:.2f}"))
    return headings, rows


def covariance(values: ndarray, where: ndarray, step: int) -> float:
    """Mean product of voxels ``step`` apart along an axis, both inside; over the three axes."""
    found = []
    for axis in range(3):
        value, inside = (np.moveaxis(each, axis, 0) for each in (values, where))
        both = inside[:-step] & inside[step:]
        found.append((value[:-step] * value[step:])[both].mean())
    return float(np.mean(found))


def to_table(headings: Sequence[str], rows: list[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    main()
