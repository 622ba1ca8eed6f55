"""Muon: what it does to a kernel, what it leaves to AdamW, and that it can stop and go on."""

import torch
from torch import nn
from torch.optim import AdamW

from tensorldm.training.checkpoint import load_optimizer_tensors, optimizer_tensors
from tensorldm.training.muon import USUAL_STEP, Muon, orthogonal

RATE = 0.01


def groups(kernels: list[nn.Parameter], others: list[nn.Parameter]) -> list[dict]:
    return [
        {"params": kernels, "lr": RATE, "weight_decay": 0.0, "orthogonal": True},
        {"params": others, "lr": RATE, "weight_decay": 0.1, "orthogonal": False},
    ]


def parameter(*shape: int, seed: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(seed)))


def with_gradients(parameters: list[nn.Parameter], seed: int) -> None:
    for index, one in enumerate(parameters):
        one.grad = torch.randn(one.shape, generator=torch.Generator().manual_seed(seed + index))


def test_singular_values_of_any_size_come_near_one():
    left, _ = torch.linalg.qr(parameter(3, 12, 12, seed=0).detach())
    right, _ = torch.linalg.qr(parameter(3, 40, 12, seed=1).detach())
    stretched = left @ torch.diag(torch.logspace(-1.8, 0, 12)) @ right.mT
    for matrices in (stretched, stretched.mT):
        found = torch.linalg.svdvals(orthogonal(matrices))
        assert found.min() > 0.6
        assert found.max() < 1.3


def test_directions_of_the_gradient_are_kept_and_only_their_lengths_change():
    matrix = parameter(1, 8, 20, seed=2).detach()
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inner = left.mT @ orthogonal(matrix) @ right.mT
    off_diagonal = inner - torch.diag_embed(torch.diagonal(inner, dim1=1, dim2=2))
    assert off_diagonal.abs().max() < 1e-4


def test_a_step_has_the_usual_length_of_adams_whatever_the_gradients_length_and_the_kernels_form():
    kernels = [parameter(16, 8, 3, 3, 3, seed=3), parameter(6, 24, 8, seed=4), parameter(10, 30, seed=5)]
    before = [kernel.detach().clone() for kernel in kernels]
    with_gradients(kernels, seed=6)
    for kernel in kernels:
        assert kernel.grad is not None
        kernel.grad *= 1e-3
    Muon(groups(kernels, [parameter(4, seed=7)])).step()
    for kernel, start in zip(kernels, before, strict=True):
        length = (kernel.detach() - start).square().mean().sqrt() / RATE
        assert 0.6 * USUAL_STEP < length < 1.3 * USUAL_STEP


def test_what_is_no_kernel_moves_exactly_as_by_adamw():
    ours, theirs = parameter(7, seed=8), parameter(7, seed=8)
    both = [Muon(groups([parameter(4, 4, seed=9)], [ours])), AdamW([theirs], lr=RATE, weight_decay=0.1)]
    for turn in range(3):
        with_gradients([ours], seed=turn)
        with_gradients([theirs], seed=turn)
        for optimizer in both:
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_decay_shrinks_kernels():
    kernel = parameter(4, 4, seed=10)
    start = kernel.detach().clone()
    kernel.grad = torch.zeros_like(kernel)
    Muon([{"params": [kernel], "lr": RATE, "weight_decay": 0.5, "orthogonal": True}]).step()
    torch.testing.assert_close(kernel.detach(), start * (1 - RATE * 0.5))


def test_a_broken_step_touches_nothing():
    kernel = parameter(4, 4, seed=11)
    start = kernel.detach().clone()
    optimizer = Muon(groups([kernel], [parameter(3, seed=12)]))
    kernel.grad = torch.full_like(kernel, torch.nan)
    optimizer.found_inf = torch.ones(1)
    optimizer.step()
    assert torch.equal(kernel, start)


def test_it_goes_on_from_what_was_saved_as_if_never_stopped():
    def made() -> tuple[list[nn.Parameter], Muon]:
        kernels, others = [parameter(6, 2, 3, 3, 3, seed=13)], [parameter(5, seed=14)]
        return kernels + others, Muon(groups(kernels, others))

    names = ["kernel.weight", "norm.scale"]
    unbroken, optimizer = made()
    for turn in range(4):
        if turn == 2:
            saved = {name: value.clone() for name, value in optimizer_tensors(optimizer, names).items()}
            weights = [one.detach().clone() for one in unbroken]
        with_gradients(unbroken, seed=turn)
        optimizer.step()
    again, resumed = made()
    load_optimizer_tensors(resumed, names, tensors=saved)
    with torch.no_grad():
        for one, weight in zip(again, weights, strict=True):
            one.copy_(weight)
    for turn in range(2, 4):
        with_gradients(again, seed=turn)
        resumed.step()
    assert all(torch.equal(one, other) for one, other in zip(again, unbroken, strict=True))
