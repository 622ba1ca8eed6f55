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
        moving = [kernel for kernel in group["params"] if kernel.grad is not None]
        for _, same in groupby(sorted(moving, key=_shape), key=_shape):
            kernels = list(same)
            steps = orthogonal(torch.cat([_matrices(self._heading(kernel)) for kernel in kernels]))
            factor = group["lr"] * USUAL_STEP * sqrt(max(steps.shape[1:]))
            self._take(kernels, steps * factor, shrink=group["lr"] * group["weight_decay"])

    def _heading(self, kernel: nn.Parameter) -> Tensor:
        """Nesterov's look ahead along the momentum."""
        state = self.state[kernel]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)  # Adam looks for it when it loads
            state["exp_avg"] = torch.zeros_like(kernel)
        assert kernel.grad is not None
        momentum: Tensor = state["exp_avg"].lerp_(kernel.grad, 1 - MOMENTUM)
        return kernel.grad.lerp(momentum, MOMENTUM)

    def _take(self, kernels: Sequence[nn.Parameter], steps: Matrices, *, shrink: float) -> None:
        """Step and decay, or neither where the step is said to be broken (``found_inf``, as fused optimisers have)."""
        broken = getattr(self, "found_inf", None)
        for kernel, step in zip(kernels, steps.chunk(len(kernels)), strict=True):
            change = step.reshape(kernel.shape).to(kernel) + shrink * kernel
            kernel.sub_(change if broken is None else torch.where(broken.bool(), 0, change))


def orthogonal(matrices: Matrices) -> Matrices:
    """Nearly the closest matrices whose singular values are all one, by Newton and Schulz's iteration."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonal(matrices.mT).mT
    a, b, c = STEEP_QUINTIC
    found: Tensor = matrices.bfloat16() if matrices.is_cuda else matrices
    found = found / (torch.linalg.matrix_norm(found, keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = found @ found.mT
        found = a * found + (b * gram + c * gram @ gram) @ found
    return found.to(matrices)


def _matrices(kernel: Tensor) -> Matrices:
    """Kernels of convolutions: one row an output channel, of all sets together, since their shape does not tell sets.

    Maps of channels have a matrix for each set already.
    """
    return kernel if kernel.ndim == 3 else kernel.flatten(1)[None]


def _shape(kernel: Tensor) -> tuple[int, ...]:
    return tuple(_matrices(kernel).shape)
