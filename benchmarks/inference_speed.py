"""Seconds and memory of one reconstruction by part, beside the plain way and MONAI's plain latent diffusion.

    python benchmarks/inference_speed.py --device cpu --shape 48 56 48 --out speed.jsonl
    python benchmarks/inference_speed.py --device cuda --against monai --compile --out speed.jsonl

Weights are random, which changes no time. Every row is measured in this one run, after a warm-up, as the least of
--repeats. ``fast`` is the package's own way: read once, then --steps of DDIM; ``default`` the same with --default-steps
of DPM-Solver++(2M), evenly in log-SNR. ``plain`` (plain_sampling.py) has the same weights and steps as ``fast`` but
computes conditions at every step, component by component; it too reads the scan once. ``plain, reading at each step``
does not: it is derived, with the time of --steps readings. Float32 on a CPU, bfloat16 autocast on a GPU. Peak memory
is that of the process (CPU: of all rows so far) or of PyTorch's own allocations (GPU). Beside torch it needs numpy,
einops, jaxtyping, pydantic and PyYAML, and monai if asked for.
"""

import argparse
import json
import platform
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from plain_sampling import plain_draw
from torch.profiler import ProfilerActivity, profile

from tensorldm.build import build_model
from tensorldm.config.reading import read_config
from tensorldm.config.run import RunConfig
from tensorldm.diffusion import linear_schedule, sample, step_pairs
from tensorldm.networks.compiling import compile_static
from tensorldm.networks.recording import RecordedStep
from tensorldm.work.memory import freed_memory_kept

JITTER = 0.02
"""Added to first weights: layers that start at zero would not show whether two ways agree."""


@dataclass
class Bench:
    """Where and on what is measured."""

    device: torch.device
    inputs: dict[str, torch.Tensor]
    repeats: int
    common: dict
    cpu_s: float = 0.0
    """Processor time since the last row: on a busy machine steadier than the clock."""

    def time(self, function):
        """Least of the repeats in seconds, and the last result."""
        result, best, cpu = function(), float("inf"), float("inf")
        for _ in range(self.repeats):
            self.wait()
            started, cpu_started = time.perf_counter(), time.process_time()
            result = function()
            self.wait()
            best = min(best, time.perf_counter() - started)
            cpu = min(cpu, time.process_time() - cpu_started)
        self.cpu_s += cpu
        return best, result

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def start_memory(self):
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_gib(self):
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated() / 2**30
        return own_peak_gib()

    def row(self, what, seconds, **more):
        line = {"what": what, **self.common, **more, **seconds, "total_s": sum(seconds.values())}
        line |= {"total_cpu_s": self.cpu_s, "peak_gib": self.peak_gib()}
        self.cpu_s = 0.0
        print(json.dumps(line), flush=True)
        return line


def own_peak_gib() -> float:
    """This program's own peak: what getrusage tells begins with that of the process that started it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**20


def head(shape, device):
    """An ellipsoid of noise with three directions on the axes."""
    random = torch.Generator().manual_seed(0)
    axes = [torch.linspace(-1, 1, side) for side in shape]
    mask = torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(0) < 0.95
    dwi = 0.2 + 0.7 * torch.rand(1, 4, *shape, generator=random)
    dwi[:, 0] = 1.0
    inputs = {
        "dwi": dwi,
        "bvals": torch.tensor([[0.0, 1000.0, 1000.0, 1000.0]]),
        "directions": torch.cat([torch.zeros(1, 3), torch.eye(3)])[None],
        "mask": mask[None],
        "voxel_size": torch.full((1, 3), 2.0),
    }
    return {name: values.to(device) for name, values in inputs.items()}


def random_model(config, device):
    """All layers at work, all attention joint: the model after the last stage."""
    model = build_model(read_config(RunConfig, config).model).eval()
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(JITTER * torch.randn(parameter.shape, generator=random))
    model.set_joint("gated", "gated")
    return model.to(device)


def measure_fast(bench, model, noise, *, steps, sampler, what, form="eager"):
    """One row of the package's own way; ``form`` of the step is eager, recorded or compiled (and recorded)."""
    bench.start_memory()
    size = tuple(bench.inputs["mask"].shape[1:])
    read, reading = bench.time(lambda: model.read(**bench.inputs))
    spacing = "log-snr" if sampler == "dpm++2m" else "trailing"
    pairs = step_pairs(steps, model.schedule, spacing=spacing)
    denoise = compile_static(model.denoise) if form == "compiled" else model.denoise
    step = partial(denoise, condition=reading.condition)
    bench.wait()
    started = time.perf_counter()
    if form == "eager":

        def predict(latents, t):
            return step(latents, torch.full((1,), t, device=latents.device))
    else:
        predict = RecordedStep(step, noise)
    bench.wait()
    preparing = time.perf_counter() - started
    way = {"pairs": pairs, "schedule": model.schedule, "sampler": sampler, "prediction": model.prediction}
    drawing, latents = bench.time(lambda: sample(predict, noise, **way))
    decoding, found = bench.time(
        lambda: model.decode(latents, reading.features, size=size) * bench.inputs["mask"][:, None]
    )
    more = {"form": form, "steps": steps, "sampler": sampler, "form_takes_s": preparing}
    if bench.device.type == "cuda":
        more["kernels_a_step"] = count_kernels(lambda: predict(noise, 500))
    seconds = {"read_s": read, "sample_s": drawing, "decode_s": decoding}
    return bench.row(what, seconds, **more, samples=len(noise)), found


def count_kernels(function):
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        function()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in record.events())


def measure_plain(bench, model, noise, *, steps):
    """The same weights and steps as ``fast``, the plain way; and what it would take with the scan read at each step.

    Then the conditioner is called where the U-Net is, as one writes it first; an expectation is regressed once all the
    same, since nothing in the loop asks for it.
    """
    bench.start_memory()
    known = {name: bench.inputs[name] for name in ("mask", "voxel_size")}
    encode = partial(model.scan_features, **bench.inputs)
    read, features = bench.time(encode)
    drawing, found = bench.time(lambda: plain_draw(model, features, noise, **known, num_steps=steps))
    more = {"form": "eager", "steps": steps, "sampler": "ddim", "samples": 1}
    row = bench.row("plain", {"read_s": read, "sample_and_decode_s": drawing}, **more)
    once = bench.time(lambda: model.expect(**bench.inputs))[0] if model.expectation is not None else 0.0
    reading = once + steps * (read - once)
    each = {**row, "what": "plain, reading at each step", "derived": True, "read_s": reading}
    each |= {"total_s": reading + drawing, "total_cpu_s": None}
    print(json.dumps(each), flush=True)
    return row, each, found


def measure_monai(bench, *, steps, channels=(64, 96, 128), latent_channels=8):
    """MONAI's U-Net and VQ-VAE as a plain latent diffusion model: the scan's latent beside the noisy one, DDIM."""
    from monai.networks.nets import VQVAE, DiffusionModelUNet

    levels = {"channels": (64, 128), "num_res_layers": 1, "num_res_channels": (64, 128)}
    strides = {
        "downsample_parameters": ((2, 4, 1, 1), (2, 4, 1, 1)),
        "upsample_parameters": ((2, 4, 1, 1, 0), (2, 4, 1, 1, 0)),
    }
    codes = {"num_embeddings": 4096, "embedding_dim": latent_channels}
    autoencoder = [VQVAE(spatial_dims=3, in_channels=n, out_channels=n, **levels, **strides, **codes) for n in (4, 6)]
    unet = DiffusionModelUNet(
        spatial_dims=3,
        in_channels=2 * latent_channels,
        out_channels=latent_channels,
        channels=channels,
        num_res_blocks=1,
        attention_levels=[False] * (len(channels) - 1) + [True],
        num_head_channels=32,
    )
    scans, tensors, unet = (network.eval().to(bench.device) for network in (*autoencoder, unet))
    bench.start_memory()
    alpha = linear_schedule()
    side = 4 * 2 ** (len(channels) - 1)
    x, y, z = (-length % side for length in bench.inputs["dwi"].shape[2:])
    padded = F.pad(bench.inputs["dwi"], (0, z, 0, y, 0, x))
    read, condition = bench.time(lambda: scans.encode(padded))
    noise = torch.randn(condition.shape, generator=torch.Generator().manual_seed(2)).to(bench.device)

    def draw():
        latents = noise
        for t, previous in step_pairs(steps, alpha, spacing="trailing"):
            predicted = unet(torch.cat([latents, condition], dim=1), torch.full((1,), t, device=bench.device)).float()
            clean = (latents - alpha.noise(t) * predicted) / alpha.signal(t)
            latents = alpha.signal(previous) * clean + alpha.noise(previous) * predicted
        return latents

    drawing, latents = bench.time(draw)
    decoding, _ = bench.time(lambda: tensors.decode_stage_2_outputs(latents))
    size = sum(p.numel() for network in (scans, tensors, unet) for p in network.parameters())
    seconds = {"read_s": read, "sample_s": drawing, "decode_s": decoding}
    return bench.row("monai", seconds, form="eager", steps=steps, sampler="ddim", samples=1, million_weights=size / 1e6)


def measure_all(wanted):
    device = torch.device(wanted.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or platform.machine()
    common = {"device": name, "threads": torch.get_num_threads(), "config": wanted.config, "shape": wanted.shape}
    bench = Bench(device, head(wanted.shape, device), wanted.repeats, {**common, "torch": torch.__version__})
    model = random_model(wanted.config, device)
    noise = torch.randn(model.latent_shape(1, tuple(wanted.shape)), generator=torch.Generator().manual_seed(0))
    noise = noise.to(device)
    plain_model = random_model(wanted.config, device) if wanted.plain else None
    if plain_model is not None and plain_model.expectation is not None:
        plain_model.expectation.both_ways = plain_model.expectation.mirrored  # the same work, in the plain layout
    forms = ["eager"]
    if device.type == "cuda":
        forms += ["recorded", "compiled"] if wanted.compile else ["recorded"]
    rows = []
    model.ready()
    for form in forms:
        for what, steps, sampler in (
            ("fast", wanted.steps, "ddim"),
            ("default", wanted.default_steps, "dpm++2m"),
        ):
            with freed_memory_kept(device.type):  # as an engine does
                row, found = measure_fast(bench, model, noise, steps=steps, sampler=sampler, what=what, form=form)
            rows.append(row)
            if what == "fast" and form == "eager":
                ours = found
    fast, default = ([row for row in rows if row["what"] == what][-1] for what in ("fast", "default"))
    ratios = {}
    if plain_model is not None:
        row, each, found = measure_plain(bench, plain_model, noise, steps=wanted.steps)
        rows += [row, each]
        differing = ((found - ours).abs() > 1e-3).float().mean()
        for label, plain in (("", row), (", reading at each step", each)):
            ratios[f"plain{label} / fast"] = plain["total_s"] / fast["total_s"]
            ratios[f"plain{label} / default"] = plain["total_s"] / default["total_s"]
        ratios["plain / fast, processor time"] = row["total_cpu_s"] / fast["total_cpu_s"]
        ratios["share of values that differ by 1e-3, plain and fast"] = float(differing)
    if wanted.against == "monai":
        rows.append(measure_monai(bench, steps=wanted.steps))
        ratios["monai / fast"] = rows[-1]["total_s"] / fast["total_s"]
    rows.append({"what": "ratios", **ratios})
    print(json.dumps(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--config", default="base")
    parser.add_argument("--shape", type=int, nargs=3, default=[96, 112, 96])
    parser.add_argument("--steps", type=int, default=25, help="of fast, plain and MONAI")
    parser.add_argument("--default-steps", type=int, default=10, help="of the second-order solver")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="on a GPU: also compile the step (takes minutes)")
    parser.add_argument("--no-plain", dest="plain", action="store_false")
    parser.add_argument("--against", choices=["monai"])
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    on_gpu = wanted.device == "cuda"
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=on_gpu):
        rows = measure_all(wanted)
    if wanted.out:
        wanted.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
