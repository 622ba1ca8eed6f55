"""Held-out subjects while a stage trains: the paper's measures, by the functions of the final tables, and the loss."""

from collections.abc import Callable, Sequence
from statistics import fmean

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from tensorldm.batch import Batch
from tensorldm.components import DIAGONAL, OFF_DIAGONAL
from tensorldm.dti.maps import colour_fa, fractional_anisotropy
from tensorldm.metrics.image import psnr, ssim
from tensorldm.metrics.ranges import ANISOTROPY_RANGE, COMPONENT_RANGES
from tensorldm.metrics.tensors import lem, off_diagonal_lem, spd_violation_rate, v1_angles
from tensorldm.shapes import Components, Packed

SCORE = "LEM"
"""What "best" means: the one number of the paper that sees the whole tensor; smaller is better."""

DRAWS = 4
"""Of diffusion step and noise for each head, where a loss has such."""

Reconstruct = Callable[[Batch, Tensor], Components]
"""(batch, positions) -> components in mm²/s."""


@torch.no_grad()
def validate(
    reconstruct: Reconstruct, subjects: Sequence[Batch], *, pause: Callable[[], None]
) -> tuple[dict[str, float], Components]:
    """Mean of each measure over the subjects, each reconstructed by itself, as a user would; and the first's tensor.

    A subject without clearly anisotropic voxels has no angle, and no say in it. ``pause`` is called before each, and
    ends it by raising.
    """
    rows: list[dict[str, float]] = []
    first = None
    for position, subject in enumerate(subjects):
        pause()
        prediction = reconstruct(subject, torch.tensor([position]))
        first = prediction if first is None else first
        rows.append(measure(subject, prediction))
    assert first is not None, "there is somebody to validate on"
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: fmean(row[name] for row in rows if name in row) for name in names}, first


@torch.no_grad()
def held_out_loss(objective: nn.Module, subjects: Sequence[Batch], *, pause: Callable[[], None]) -> float:
    """Mean of what a stage minimises, with the same draws each time: what differs between two times is the weights.

    In training each step has heads, diffusion steps and noise of its own, and its loss moves too much to show the way.
    """
    draws = DRAWS if getattr(objective, "draws", False) else 1
    losses = []
    for index, subject in enumerate(subjects):
        pause()
        for position in range(index * draws, (index + 1) * draws):
            loss, _ = objective(subject, torch.tensor([position]))
            losses.append(float(loss))
    return fmean(losses)


def measure(subject: Batch, prediction: Components) -> dict[str, float]:
    """The measures of one subject against its reference tensor."""
    reference, mask = packed(subject.components), subject.mask[0]
    guess = packed(prediction).float()
    values = {
        SCORE: lem(reference, guess, mask),
        "off-diagonal LEM": off_diagonal_lem(reference, guess, mask),
        "SPD violations %": spd_violation_rate(guess, mask),
        "PSNR diagonal": _component_psnr(reference, guess, mask, components=DIAGONAL),
        "PSNR off-diagonal": _component_psnr(reference, guess, mask, components=OFF_DIAGONAL),
    }
    fa, fa_guess = fractional_anisotropy(reference), fractional_anisotropy(guess)
    values["PSNR FA"] = psnr(fa, fa_guess, mask, data_range=ANISOTROPY_RANGE)
    values["SSIM FA"] = ssim(fa, fa_guess, mask, data_range=ANISOTROPY_RANGE)
    angles = v1_angles(reference, guess, mask)
    if angles.numel():
        values["v1 angle"] = angles.median()
    return {name: float(value) for name, value in values.items()}


def packed(components: Components) -> Packed:
    """The first subject's volumes as a list of voxels' tensors."""
    return rearrange(components[0], "d x y z -> x y z d")


def colour_fa_picture(subject: Batch, prediction: Components) -> Float[Tensor, "3 height width"]:
    """Colour FA of reference and prediction side by side, middle axial slice, front up."""
    middle = subject.mask.shape[-1] // 2
    sides = []
    for components in (subject.components, prediction):
        tensors = packed(components)[:, :, middle].float() * subject.mask[0, :, :, middle, None]
        sides.append(rearrange(colour_fa(tensors), "x y rgb -> rgb y x").flip(1))
    return torch.cat(sides, dim=2).clamp(0, 1).cpu()


def _component_psnr(reference: Packed, guess: Packed, mask: Tensor, *, components: Sequence[int]) -> Tensor:
    each = [psnr(reference[..., d], guess[..., d], mask, data_range=COMPONENT_RANGES[d]) for d in components]
    return torch.stack(each).mean()
