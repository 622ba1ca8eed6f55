"""Functions of a tensor through its eigenvalues, f(D) = V f(Λ) Vᵀ, with a gradient that is right everywhere.

Differentiating an eigen-decomposition divides by differences of eigenvalues and gives NaN for isotropic and
cylindrical tensors. The derivative of f(D) itself needs only divided differences f[a, b] = (f(a) − f(b))/(a − b),
which become f'(a) where a = b (Daleckii and Krein): in the eigenbasis, entry i, j of the change is multiplied by
f[λi, λj]. [choice: log-gradient]
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from tensorldm.components import COLUMNS, DIAGONAL, ROWS
from tensorldm.dti.eigen import compose, eigen
from tensorldm.dti.packing import congruence, widen
from tensorldm.shapes import Packed


@dataclass(frozen=True)
class SpectralFunction:
    """A scalar function and its divided difference, both elementwise; the second one must be right at a = b."""

    value: Callable[[Tensor], Tensor]
    divided_difference: Callable[[Tensor, Tensor], Tensor]


def apply_to_eigenvalues(function: SpectralFunction, packed: Packed) -> Packed:
    """f(D) for every voxel."""
    packed = widen(packed)
    if not (packed.requires_grad and torch.is_grad_enabled()):
        values, vectors = eigen(packed)
        return compose(function.value(values), vectors)
    result: Tensor = _Apply.apply(packed, function)  # type: ignore[no-untyped-call]  # torch does not annotate apply
    return result


class _Apply(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, packed: Tensor, function: SpectralFunction) -> Tensor:
        values, vectors = eigen(packed)
        ctx.save_for_backward(values, vectors)
        ctx.function = function  # type: ignore[attr-defined]  # the context takes any attribute
        return compose(function.value(values), vectors)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        values, vectors = ctx.saved_tensors  # type: ignore[attr-defined]  # set by save_for_backward
        divided_difference = ctx.function.divided_difference  # type: ignore[attr-defined]  # set in forward
        # A packed off-diagonal stands for two entries of the matrix: halve it going in, double it coming out.
        twice = 1 + (torch.arange(6, device=gradient.device) >= len(DIAGONAL)).to(gradient)
        in_eigenbasis = congruence(gradient / twice, vectors.mT)
        rows, columns = (torch.stack([values[..., k] for k in order], dim=-1) for order in (ROWS, COLUMNS))
        factors = divided_difference(rows, columns)
        return congruence(in_eigenbasis * factors, vectors) * twice, None
