"""Are the gradient directions mirrored or exchanged? Only under the right axes do fibres lead into each other.

A wrong sign or order of axes turns every principal direction v1 the same way, as M v1 with a signed permutation M.
Neighbouring voxels of white matter then no longer point at each other. Coherence is measured for all 24 distinct M
(the idea of MRtrix3's `dwigradcheck` and of fibre coherence indices); the fit is made once, because the tensor of
turned gradients is the turned tensor. It is a covariance over pairs of neighbours, so that directions which prefer
some axis everywhere, as noise makes them do, count for nothing. Four volumes cannot be checked, and that is said.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from numpy import ndarray
from scipy import ndimage

from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import fractional_anisotropy, principal_direction
from tensorldm.dti.signal import design_matrix
from tensorldm.imaging.frames import between
from tensorldm.imaging.gradient_table import GradientTable, Shell
from tensorldm.imaging.volume import Volume
from tensorldm.shapes import MaskImage

UNTESTABLE = "gradient signs cannot be verified from these volumes"
LEAST_DIRECTIONS = 6
LARGEST_CONDITION = 10.0
"""Of the six-column design of unit directions: 2 for well-spread ones, large when they leave a component unmeasured."""
PREFERRED_BVAL = 1000.0
LARGEST_VOXEL_MM = 5.5
"""In coarser voxels neighbours belong to different bundles; 5.2 mm slices are still told right."""
LEAST_FA, LARGEST_FA = 0.3, 0.95
LEAST_PAIRS = 500
LARGEST_PAIRS = 15_000
"""Pairs per neighbour offset; more would cost time and not change the outcome."""
SHARPNESS = 4
"""Power of cos²: a pair counts by half at an angle of about 24° to the line between its voxels."""
LEAST_MARGIN = 0.03
"""Nine scans of four vendors show margins of 0.11 to 0.18."""
LEAST_CORRELATION = 0.2
"""Between neighbours, under the best candidate: 0.6 to 0.7 in real scans, near 0 in noise."""


@dataclass(frozen=True, eq=False)
class FlipCheck:
    """What fibre coherence says of a gradient table."""

    status: Literal["verified", "suspect", "untestable"]
    message: str
    margin: float | None = None
    """1 - other/given, for the coherence of the table as given and of the best other; below 0 when that is better."""
    correction: Float[ndarray, "3 3"] | None = None
    """For a suspect table: the signed permutation that mends it, ``gradients.turned(correction)``."""


def check_flips(
    volume: Volume, gradients: GradientTable, *, mask: MaskImage, to_file: Float[ndarray, "3 3"] | None = None
) -> FlipCheck:
    """Compare the table as given with its 23 sign flips and axis swaps, over the white matter of a series.

    ``to_file`` takes vectors in the volume's axes to those of the b-vectors' file, in whose axes the user is told what
    to mend; by default FSL's for this volume. It differs where the volume was re-oriented after it was read.
    """
    chosen = _testable_shell(gradients)
    if chosen is None or not gradients.b0_indices or max(volume.space.voxel_size) > LARGEST_VOXEL_MM:
        return FlipCheck("untestable", UNTESTABLE)
    indices = [*gradients.b0_indices, *chosen.indices]
    coherence = _coherence(volume.with_data(volume.data[..., indices]), gradients.select(indices), mask)
    if coherence is None:
        return FlipCheck("untestable", UNTESTABLE)
    given, others = coherence[0], coherence[1:]
    margin = float(1 - others.max() / given)
    if margin >= LEAST_MARGIN:
        return FlipCheck("verified", f"gradient directions fit the fibres (margin {margin:.0%})", margin)
    if margin > -LEAST_MARGIN:
        return FlipCheck("untestable", UNTESTABLE, margin)
    correction = CANDIDATES[1 + int(others.argmax())]
    turn = between("image", "fsl", space=volume.space) if to_file is None else to_file
    message = (
        f"fibres hang together {-margin:.0%} better with x, y, z of the b-vectors (in FSL's frame) taken as "
        f"{describe(turn @ correction @ turn.T)}: check signs and order of the b-vectors"
    )
    return FlipCheck("suspect", message, margin, correction)


def describe(candidate: Float[ndarray, "3 3"]) -> str:
    """A signed permutation in words: ``-x, y, z``; its overall sign has no meaning, and as few are turned as can be."""
    candidate = candidate if (candidate < -0.5).sum() < 2 else -candidate
    return ", ".join(("-" if row.min() < -0.5 else "") + "xyz"[int(np.abs(row).argmax())] for row in candidate)


def _candidates() -> list[Float[ndarray, "3 3"]]:
    """Permutations times sign flips of at most one axis: a direction's overall sign has no meaning. Identity first."""
    signs = ((1, 1, 1), (-1, 1, 1), (1, -1, 1), (1, 1, -1))
    orders = [np.eye(3)[list(order)] for order in permutations(range(3))]
    return [np.diag(np.array(sign, dtype=np.float64)) @ order for order, sign in product(orders, signs)]


CANDIDATES = _candidates()


def _testable_shell(gradients: GradientTable) -> Shell | None:
    """The shell nearest to the preferred b-value that determines a tensor well, if there is one."""
    for shell in sorted(gradients.shells(), key=lambda shell: abs(shell.bval - PREFERRED_BVAL)):
        if len(shell.indices) < LEAST_DIRECTIONS:
            continue
        directions = torch.from_numpy(gradients.directions[list(shell.indices)])
        design = design_matrix(torch.ones(len(directions), dtype=directions.dtype), directions)[:, :6]
        if float(torch.linalg.cond(design)) <= LARGEST_CONDITION:
            return shell
    return None


def _coherence(volume: Volume, gradients: GradientTable, mask: MaskImage) -> Float[ndarray, " 24"] | None:
    """How well neighbours point at each other under each candidate; None where the fibres say too little."""
    white, anisotropy, axes = _white_matter(volume, gradients, mask)
    covariance, spread, num_pairs = np.zeros(len(CANDIDATES)), np.zeros(len(CANDIDATES)), 0
    for offset in _half_of_the_neighbours():
        step = np.array(offset) * volume.space.voxel_size
        # M v · line = v · Mᵀ line: turning 24 lines is cheaper than turning every v1.
        lines = np.stack([step / np.linalg.norm(step) @ candidate for candidate in CANDIDATES], axis=1)
        here, there = _pairs(white, offset)
        pairs = np.flatnonzero(here & there)
        pairs = pairs[:: 1 + len(pairs) // LARGEST_PAIRS]
        if len(pairs) == 0:
            continue
        weight = np.prod([part.reshape(-1)[pairs] for part in _pairs(anisotropy, offset)], axis=0)[:, None]
        one, other = (
            (part.reshape(-1, 3)[pairs] @ lines.astype(np.float32)) ** (2 * SHARPNESS) for part in _pairs(axes, offset)
        )
        one, other = (values - np.average(values, axis=0, weights=weight[:, 0]) for values in (one, other))
        covariance += (weight * one * other).sum(axis=0)
        spread += np.sqrt((weight * one**2).sum(axis=0) * (weight * other**2).sum(axis=0))
        num_pairs += len(pairs)
    best = int(covariance.argmax())
    if num_pairs < LEAST_PAIRS or covariance[best] < LEAST_CORRELATION * spread[best] or covariance[0] <= 0:
        return None
    return covariance


def _white_matter(
    volume: Volume, gradients: GradientTable, mask: MaskImage
) -> tuple[MaskImage, Float[ndarray, "x y z"], Float[ndarray, "x y z 3"]]:
    """Where fibres are, FA, and v1 in image axes."""
    signal = torch.from_numpy(volume.data[mask])
    packed, _ = fit_ols(signal, torch.from_numpy(gradients.bvals), torch.from_numpy(gradients.directions))
    anisotropy = np.zeros(mask.shape, dtype=np.float32)
    anisotropy[mask] = fractional_anisotropy(packed).numpy()
    axes = np.zeros((*mask.shape, 3), dtype=np.float32)
    axes[mask] = principal_direction(packed).numpy()
    inner = ndimage.binary_erosion(mask, border_value=1)
    return inner & (anisotropy > LEAST_FA) & (anisotropy < LARGEST_FA), anisotropy, axes


def _half_of_the_neighbours() -> Iterator[tuple[int, int, int]]:
    """Thirteen of the 26 offsets: the others are the same pairs again."""
    for x, y, z in product((-1, 0, 1), repeat=3):
        if (x, y, z) > (0, 0, 0):
            yield x, y, z


def _pairs(
    array: Shaped[ndarray, "x y z *n"], offset: tuple[int, int, int]
) -> tuple[Shaped[ndarray, "u v w *n"], Shaped[ndarray, "u v w *n"]]:
    """Every voxel that has a neighbour at this offset, and that neighbour."""
    here = tuple(slice(max(0, -k), n - max(0, k)) for k, n in zip(offset, array.shape[:3], strict=True))
    there = tuple(slice(max(0, k), n + min(0, k)) for k, n in zip(offset, array.shape[:3], strict=True))
    return array[here], array[there]
