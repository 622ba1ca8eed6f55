"""Eigenvalues and eigenvectors of symmetric 3×3 matrices without iteration.

With B = (D − mI)/p, scaled to tr B = 0 and tr B² = 6, the three eigenvalues of B are 2cos(θ/3 + 2πk/3), where
cos θ = det(B)/2. Taken literally this loses half of the digits where two eigenvalues are close. But one eigenvalue is
always at least √3 away from the others; it and its eigenvector are well conditioned, and what is left in the plane
across it is a 2×2 problem with an exact answer. So every tensor gets full accuracy (isotropic, cylindrical and
zero ones too), without branches, and the same code runs on CPU and GPU for whole volumes, which
``torch.linalg.eigh`` cannot. Flipping the sign of B where det(B) < 0 makes the lone eigenvalue always the largest.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from tensorldm.dti.packing import widen
from tensorldm.shapes import Eigenvalues, Packed, Tensors


def eigenvalues(packed: Packed) -> Eigenvalues:
    """Eigenvalues in descending order, without the eigenvectors.

    The gradient, v vᵀ per eigenvalue, is finite everywhere. At equal eigenvalues it is right for any function that is
    symmetric in them (trace, norm, FA).
    """
    values: Tensor = _Eigenvalues.apply(widen(packed))  # type: ignore[no-untyped-call]  # torch does not annotate apply
    return values


def eigen(packed: Packed) -> tuple[Eigenvalues, Tensors]:
    """Eigenvalues in descending order and eigenvectors in columns, orthonormal and right-handed for every tensor.

    The sign of an eigenvector carries no meaning. The values have a gradient; the vectors have none, because theirs is
    infinite at equal eigenvalues (use ``logarithm`` for smooth functions of a tensor).
    """
    values, vectors = _Eigen.apply(widen(packed))  # type: ignore[no-untyped-call]  # torch does not annotate apply
    return values, vectors


def compose(values: Eigenvalues, vectors: Tensors) -> Packed:
    """V diag(λ) Vᵀ: the tensor with these eigenvalues and eigenvectors."""
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = (column.unbind(-1) for column in vectors.unbind(-1))
    a, b, c = values.unbind(-1)
    rows = [
        a * ai * aj + b * bi * bj + c * ci * cj
        for ai, aj, bi, bj, ci, cj in (
            (ax, ax, bx, bx, cx, cx),
            (ay, ay, by, by, cy, cy),
            (az, az, bz, bz, cz, cz),
            (ax, ay, bx, by, cx, cy),
            (ax, az, bx, bz, cx, cz),
            (ay, az, by, bz, cy, cz),
        )
    ]
    return torch.stack(rows).movedim(0, -1)


_CPU_CHUNK_VOXELS = 1 << 16
"""On a CPU the dozens of intermediate arrays of one chunk stay in the cache; a GPU takes all voxels at once."""


class _Normalised(NamedTuple):
    """B, flipped so that its lone eigenvalue is the largest: D = scale·(mean·I + sign·spread·B)."""

    components: Tensor
    lone: Tensor
    sign: Tensor
    scale: Tensor
    mean: Tensor
    spread: Tensor

    def restore(self, half_gap: Tensor) -> Tensor:
        """Eigenvalues of D, stacked first, from those of B: lone, −lone/2 + half_gap, −lone/2 − half_gap."""
        half = self.lone / 2
        one_end, other_end = self.sign * self.lone, -self.sign * (half + half_gap)
        of_b = (torch.maximum(one_end, other_end), self.sign * (half_gap - half), torch.minimum(one_end, other_end))
        return torch.addcmul(self.mean, self.spread, torch.stack(of_b)) * self.scale


def _in_chunks(solve: Callable[[Tensor], Tensor], packed: Tensor) -> Tensor:
    """Run ``solve`` (a list of packed voxels to rows of results) over voxels of any shape; results come last again."""
    flat = packed.reshape(-1, 6)
    parts = torch.split(flat, _CPU_CHUNK_VOXELS) if flat.device.type == "cpu" else (flat,)
    solved = torch.cat([solve(part) for part in parts], dim=-1)
    return solved.reshape(len(solved), *packed.shape[:-1]).movedim(0, -1)


def _normalise(packed: Tensor) -> _Normalised:
    rows = packed.mT.contiguous()
    tiny = torch.finfo(rows.dtype).tiny
    scale = rows.abs().amax(dim=0).clamp(min=tiny)
    rows = rows / scale
    mean = rows[:3].sum(dim=0) / 3
    diagonal = rows[:3] - mean
    # Of a nearly isotropic tensor the rounding error of the mean would be the whole of B, so the mean is taken twice.
    rest = diagonal.sum(dim=0) / 3
    b = torch.cat((diagonal - rest, rows[3:]))
    square = b * b
    spread = (square[:3].sum(dim=0) / 6 + square[3:].sum(dim=0) / 3).sqrt()
    b = b / spread.clamp(min=tiny**0.5)  # less than this the squares above do not resolve
    xx, yy, zz, xy, xz, yz = b.unbind(0)
    determinant = xx * _difference(yy, zz, yz, yz) - xy * _difference(xy, zz, 2 * xz, yz) - xz * xz * yy
    sign = torch.copysign(torch.ones_like(determinant), determinant)
    lone = 2 * torch.cos(torch.acos((determinant.abs() / 2).clamp(max=1)) / 3)
    return _Normalised(b * sign, lone, sign, scale, mean + rest, spread)


def _difference(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """a·b − c·d in two passes over memory."""
    return torch.addcmul(a * b, c, d, value=-1)


def _adjugate_of_shifted(normalised: _Normalised) -> tuple[Tensor, ...]:
    """adj(B − lone·I) = 3(lone² − 1)·v vᵀ, where v is the lone eigenvector."""
    x, y, z = normalised.components[:3] - normalised.lone
    xy, xz, yz = normalised.components[3:]
    return (
        _difference(y, z, yz, yz),
        _difference(x, z, xz, xz),
        _difference(x, y, xy, xy),
        _difference(xz, yz, xy, z),
        _difference(xy, yz, xz, y),
        _difference(xy, xz, yz, x),
    )


def _solve_values(packed: Tensor) -> Tensor:
    """Half the gap of the close pair is the norm of what is left of B once the lone eigenvalue is taken out."""
    normalised = _normalise(packed)
    lone = normalised.lone
    share = -lone / (2 * (lone * lone - 1))
    left = torch.addcmul(normalised.components, torch.stack(_adjugate_of_shifted(normalised)), share)
    diagonal, off_diagonal = left[:3] + lone / 2, left[3:]
    half_gap = ((diagonal * diagonal).sum(dim=0) / 2 + (off_diagonal * off_diagonal).sum(dim=0)).sqrt()
    return normalised.restore(half_gap)


def _solve(packed: Tensor) -> Tensor:
    """Three eigenvalues, then the nine entries of the eigenvectors row by row."""
    normalised = _normalise(packed)
    v = _lone_vector(_adjugate_of_shifted(normalised))
    u, w = _plane_across(v)
    x, y, z = _columns(normalised.components.unbind(0))
    image = torch.addcmul(torch.addcmul(x * u[0], y, u[1]), z, u[2])
    # B in the plane is −lone/2·I + [[along, across], [across, −along]]: a rotation by half their angle solves it.
    along = (u * image).sum(dim=0) + normalised.lone / 2
    across = (w * image).sum(dim=0)
    angle = torch.atan2(across, along) / 2
    cosine, sine = angle.cos(), angle.sin()
    middle = torch.addcmul(cosine * u, sine, w) * normalised.sign
    lowest = _difference(cosine, w, sine, u)
    positive = (1 + normalised.sign) / 2
    vectors = torch.stack((_choose(positive, v, lowest), middle, _choose(positive, lowest, v)), dim=1)
    return torch.cat((normalised.restore(torch.hypot(along, across)), vectors.flatten(0, 1)))


def _decompose(packed: Tensor) -> tuple[Tensor, Tensor]:
    both = _in_chunks(_solve, packed)
    return both[..., :3], both[..., 3:].reshape(*packed.shape[:-1], 3, 3)


def _columns(components: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
    xx, yy, zz, xy, xz, yz = components
    return torch.stack((xx, xy, xz)), torch.stack((xy, yy, yz)), torch.stack((xz, yz, zz))


def _lone_vector(adjugate: tuple[Tensor, ...]) -> Tensor:
    """The longest column of c·v vᵀ, normalised: at least c/√3 long, and c ≥ 6."""
    xx, yy, zz, *_ = adjugate
    x, y, z = _columns(adjugate)
    use_x, use_y = (xx >= torch.maximum(yy, zz)).to(xx), (yy >= zz).to(xx)
    longest = _choose(use_x, x, _choose(use_y, y, z))
    return longest / (longest * longest).sum(dim=0).sqrt()


def _choose(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where the condition is 1, b where it is 0: exact, and on a CPU many times faster than ``torch.where``."""
    return torch.lerp(b, a, condition)


def _plane_across(v: Tensor) -> tuple[Tensor, Tensor]:
    """Two unit vectors that complete a unit vector to a right-handed frame (u, w, v), without a branch."""
    x, y, z = v.unbind(0)
    sign = torch.copysign(torch.ones_like(z), z)
    a = -1 / (sign + z)
    xa, signed_x = x * a, sign * x
    b = xa * y
    u = torch.stack((1 + signed_x * xa, sign * b, -signed_x))
    return u, torch.stack((b, torch.addcmul(sign, y * y, a), -y))


def _pull_back(gradient: Tensor, vectors: Tensor) -> Tensor:
    """Gradient of a function of the eigenvalues; a packed off-diagonal stands for two entries of the matrix."""
    packed = compose(gradient, vectors)
    return torch.cat((packed[..., :3], 2 * packed[..., 3:]), dim=-1)


class _Eigenvalues(torch.autograd.Function):
    @staticmethod
    def forward(packed: Tensor) -> Tensor:
        return _in_chunks(_solve_values, packed)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        (packed,) = ctx.saved_tensors  # type: ignore[attr-defined]  # set by save_for_backward
        return _pull_back(gradient, _decompose(packed)[1])


class _Eigen(torch.autograd.Function):
    @staticmethod
    def forward(packed: Tensor) -> tuple[Tensor, Tensor]:
        return _decompose(packed)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:  # noqa: ARG004
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor, _: Tensor) -> Tensor:
        (vectors,) = ctx.saved_tensors  # type: ignore[attr-defined]  # set by save_for_backward
        return _pull_back(gradient, vectors)
