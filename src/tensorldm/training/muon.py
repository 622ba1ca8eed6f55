"""Muon: AdamW, but kernels move by their momentum made orthogonal [choice: muon].

The gradient of a kernel is a matrix of few large singular values, so that Adam's step goes along few directions.
Making the matrix orthogonal gives all of them one length. Steps are scaled to the length that Adam's usually have, so
that rates of the two compare.
Axes: n matrices of one shape, r rows, k columns.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from math import sqrt
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import AdamW

ORTHOGONAL = "orthogonal"
"""The mark of a group whose parameters are kernels; every group has it."""
MOMENTUM = 0.95
USUAL_STEP = 0.2
"""Root mean square of Adam's steps in units of the rate, as it is seen in practice."""
ITERATIONS = 5
STEEP_QUINTIC = (3.4445, -4.7750, 2.0315)
"""a x + b x³ + c x⁵ brings every singular value of 0.003 to 1 into 0.7 to 1.2 in five turns: near enough."""

Matrices = Float[Tensor, "n r k"]


class Muon(AdamW):
    """AdamW for groups that are not marked ``orthogonal``; those that are have momentum alone."""

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move every parameter that has a gradient."""
        every = self.param_groups
        self.param_groups = [group for group in every if not group[ORTHOGONAL]]
        try:
            loss: float | None = super().step(closure)
        finally:
            self.param_groups = every
        for group in every:
            if group[ORTHOGONAL]:
                self._move_kernels(group)
        return loss

    def _move_kernels(self, group: dict[str, Any]) -> None:
        """Kernels of one shape go together: few large products, not many small ones."""
        moving = sorted((kernel for kernel in group["params"] if kernel.grad is not None), key=_shape)
        if not moving:
            return
        steps: list[Tensor] = []
        headings = zip(moving, self._headings(moving), strict=True)
        for _, same in groupby(headings, key=lambda pair: _shape(pair[0])):
            kernels, ahead = zip(*same, strict=True)
            found = orthogonal(torch.cat([_matrices(heading) for heading in ahead]))
            found = found * (group["lr"] * USUAL_STEP * sqrt(max(found.shape[1:])))
            steps += [
                step.reshape(kernel.shape) for kernel, step in zip(kernels, found.chunk(len(kernels)), strict=True)
            ]
        self._take(moving, steps, shrink=group["lr"] * group["weight_decay"])

    def _headings(self, kernels: list[nn.Parameter]) -> Sequence[Tensor]:
        """Nesterov's look ahead along the momentum."""
        for kernel in kernels:
            state = self.state[kernel]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)  # Adam looks for it when it loads
                state["exp_avg"] = torch.zeros_like(kernel)
        gradients = [kernel.grad for kernel in kernels if kernel.grad is not None]
        momenta = [self.state[kernel]["exp_avg"] for kernel in kernels]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        return torch._foreach_lerp(gradients, momenta, MOMENTUM)

    def _take(self, kernels: list[nn.Parameter], steps: list[Tensor], *, shrink: float) -> None:
        """Step and decay, or neither where the step is said to be broken (``found_inf``, as fused optimisers have)."""
        moved: list[Tensor] = list(kernels)
        changes = list(torch._foreach_add(steps, moved, alpha=shrink))
        broken = getattr(self, "found_inf", None)
        if broken is not None:
            changes = [torch.where(broken.bool(), 0, change) for change in changes]
        torch._foreach_sub_(moved, changes)


def orthogonal(matrices: Matrices) -> Matrices:
    """Nearly the closest matrices whose singular values are all one, by Newton and Schulz's iteration."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT
    a, b, c = STEEP_QUINTIC
    found: Tensor = matrices.bfloat16() if matrices.is_cuda else matrices
    found = found / (torch.linalg.matrix_norm(found, keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = found @ found.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        found = torch.baddbmm(found, polynomial, found, beta=a)
    return found.to(matrices)


def _matrices(kernel: Tensor) -> Matrices:
    """Kernels of convolutions: one row an output channel, of all sets together, since their shape does not tell sets.

    Maps of channels have a matrix for each set already.
    """
    return kernel if kernel.ndim == 3 else kernel.flatten(1)[None]


def _shape(kernel: Tensor) -> tuple[int, ...]:
    return tuple(_matrices(kernel).shape)
