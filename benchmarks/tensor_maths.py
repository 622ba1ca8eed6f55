"""Speed of the tensor maths on a simulated whole brain at 2 mm, as ratios to DIPY and to ``torch.linalg.eigh``.

Run by hand: ``python benchmarks/tensor_maths.py [--device cuda] [--threads 2]``. Each figure is the best of a few runs
after a warm-up; both sides start from the same array and mask. Where DIPY is not installed its part is skipped.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable

import torch
from torch import Tensor

from tensorldm.dti.eigen import eigen, eigenvalues
from tensorldm.dti.fit import fit_ols, fit_wls
from tensorldm.dti.logarithm import log
from tensorldm.dti.maps import colour_fa, fractional_anisotropy
from tensorldm.dti.packing import pack, unpack
from tensorldm.dti.signal import predict_signal

GRID = (96, 112, 96)
EIGH_CHUNK = 32_768
"""Matrices per call: given a whole brain at once ``eigh`` asks a GPU for more memory than there is, and given 100,000
matrices cuSOLVER ends with an internal error (seen with torch 2.11 on an H200)."""


def best_seconds(work: Callable[[], object], device: torch.device, *, runs: int = 10) -> float:
    """Fastest run after one warm-up."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def brain_mask() -> Tensor:
    """An ellipsoid of about 250,000 voxels."""
    axes = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in GRID), indexing="ij")
    return sum(axis**2 for axis in axes) < 0.77**2


def tensors(count: int, generator: torch.Generator) -> Tensor:
    """Tensors of all shapes from a sphere to a line, in random directions."""
    frames = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator))[0]
    values = 2e-4 + 1.8e-3 * torch.rand(count, 3, generator=generator)
    return pack((frames * values.unsqueeze(-2)) @ frames.mT)


def scheme(num_b0: int, num_directions: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    directions = torch.nn.functional.normalize(torch.randn(num_directions, 3, generator=generator), dim=-1)
    bvals = torch.cat((torch.zeros(num_b0), torch.full((num_directions,), 1000.0)))
    return bvals, torch.cat((torch.zeros(num_b0, 3), directions))


def series(mask: Tensor, bvals: Tensor, directions: Tensor, generator: torch.Generator) -> Tensor:
    """A noisy 4D series, zero outside the mask."""
    inside = tensors(int(mask.sum()), generator)
    signal = predict_signal(inside, torch.full((len(inside),), 1000.0), bvals, directions)
    noise = 30 * torch.randn(2, *signal.shape, generator=generator)
    volume = torch.zeros(*mask.shape, len(bvals))
    volume[mask] = torch.hypot(signal + noise[0], noise[1])
    return volume


def compare_fits(num_b0: int, num_directions: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    mask = brain_mask()
    bvals, directions = scheme(num_b0, num_directions, generator)
    volume = series(mask, bvals, directions, generator)
    there, mask_there = volume.to(device), mask.to(device)

    def inside_mask() -> Tensor:
        # NumPy gathers rows three times as fast as torch does on a CPU, and scans come as NumPy arrays.
        return torch.from_numpy(volume.numpy()[mask.numpy()]) if device.type == "cpu" else there[mask_there]

    def ours(fit: Callable[..., tuple[Tensor, Tensor]]) -> Tensor:
        packed, _ = fit(inside_mask(), bvals, directions)
        fa = torch.zeros(mask.shape, device=device)
        fa[mask_there] = fractional_anisotropy(packed)
        return fa

    print(f"\nFit and FA, {len(bvals)} volumes, {int(mask.sum()):,} voxels in {'×'.join(map(str, GRID))}")
    seconds = {name: best_seconds(lambda f=f: ours(f), device) for name, f in (("OLS", fit_ols), ("WLS", fit_wls))}
    for name, value in seconds.items():
        print(f"  tensorldm {name} on {device}: {value * 1e3:8.1f} ms")
    if importlib.util.find_spec("dipy") is None:
        print("  DIPY is not installed here: comparison skipped.")
        return
    from dipy.core.gradients import gradient_table
    from dipy.reconst.dti import TensorModel

    table = gradient_table(bvals.double().numpy(), bvecs=directions.double().numpy())
    data, inside = volume.numpy(), mask.numpy()
    for name, fit, runs in (("OLS", fit_ols, 3), ("WLS", fit_wls, 1)):
        model = TensorModel(table, fit_method=name)
        theirs = best_seconds(lambda model=model: model.fit(data, mask=inside).fa, torch.device("cpu"), runs=runs)
        difference = (torch.from_numpy(model.fit(data, mask=inside).fa) - ours(fit).cpu()).abs().max().item()
        print(
            f"  DIPY      {name} on cpu: {theirs * 1e3:8.1f} ms   ratio {theirs / seconds[name]:6.1f}"
            f"   largest difference of FA {difference:.1e}"
        )


def compare_eigen(count: int, device: torch.device) -> None:
    packed = tensors(count, torch.Generator().manual_seed(0)).to(device)
    matrices = unpack(packed)
    print(f"\nEigen-decomposition of {count:,} tensors on {device}, float32")
    theirs = best_seconds(lambda: [torch.linalg.eigh(part) for part in matrices.split(EIGH_CHUNK)], device, runs=2)
    print(f"  torch.linalg.eigh, chunks of {EIGH_CHUNK:,}: {theirs * 1e3:8.1f} ms")
    for name, function in (
        ("eigen", eigen),
        ("eigenvalues", eigenvalues),
        ("log", log),
        ("colour_fa", colour_fa),
    ):
        seconds = best_seconds(lambda function=function: function(packed), device)
        print(f"  {name:12} {seconds * 1e3:8.2f} ms   ratio {theirs / seconds:7.1f}")
        if device.type == "cuda":
            fused = torch.compile(function, fullgraph=True)
            seconds = best_seconds(lambda fused=fused: fused(packed), device)
            print(f"  {'  compiled':12} {seconds * 1e3:8.2f} ms   ratio {theirs / seconds:7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--eigen-only", action="store_true", help="leave the fits out")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} CPU threads, device {arguments.device}")
    with torch.inference_mode():
        compare_eigen(250_000 if arguments.device.type == "cpu" else 1_032_192, arguments.device)
        for num_b0, num_directions in () if arguments.eigen_only else ((1, 16), (18, 90)):
            compare_fits(num_b0, num_directions, arguments.device)


if __name__ == "__main__":
    main()
