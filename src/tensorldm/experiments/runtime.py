"""How long one volume takes: by part for our own model, and the whole way from series to tensor for every method.

A first run warms caches and kernels and is not counted. Where many steps would take too long on a device, the time is
extrapolated in the number of steps from shorter runs, and marked.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import torch

from tensorldm.baselines.analytic import analytic_method
from tensorldm.baselines.learned.choice import choose
from tensorldm.batch import Batch
from tensorldm.experiments.config import MethodConfig, RuntimeConfig
from tensorldm.experiments.measuring import SubjectWork
from tensorldm.experiments.methods import Workbench, method_settings
from tensorldm.experiments.record import processor_name
from tensorldm.model import ScanReading, TensorLDM
from tensorldm.reconstruct.model_engine import ModelEngine

TOTAL, ENCODE, SAMPLE, DECODE = "total_seconds", "encode_seconds", "sample_seconds", "decode_seconds"
SPREAD: Final = "_sd"
EXTRAPOLATED: Final = "extrapolated"
"""1 where the time is not a measurement."""


class Timing(NamedTuple):
    """Seconds, over repeats."""

    mean: float
    spread: float


def hardware(device: torch.device) -> str:
    """What the seconds were measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor_name()}, {torch.get_num_threads()} threads"


def time_method(work: SubjectWork, method: MethodConfig, *, steps: int, config: RuntimeConfig) -> dict[str, float]:
    """Seconds of one method on the bench's device, by metric."""
    device, loaded = work.bench.device, work.loaded
    if method.analytic is not None:
        form = analytic_method(method.analytic)
        return _named(TOTAL, timed(lambda: form.reconstruct(loaded.scan), device, config.repeats))
    assert method.bundle is not None, "autoencoders are no method for a user"
    longest = config.longest_steps.get(device.type)
    if longest is None or steps <= longest:
        return _measured(work, method, steps, config.repeats)
    found = _measured(work, method, longest, config.repeats)
    if SAMPLE in found:
        each = found[SAMPLE] / longest
    else:
        few = max(1, longest // 2)
        shorter = _measured(work, method, few, config.repeats)[TOTAL]
        each = max(0.0, found[TOTAL] - shorter) / max(1, longest - few)
    return extrapolated(found, each=each, further=steps - longest)


def extrapolated(found: dict[str, float], *, each: float, further: int) -> dict[str, float]:
    """Seconds after ``further`` steps of ``each`` second more; reading and decoding do not depend on them."""
    grown = {name: found[name] + each * further for name in (TOTAL, SAMPLE) if name in found}
    return {**found, **grown, EXTRAPOLATED: 1.0}


def _measured(work: SubjectWork, method: MethodConfig, steps: int, repeats: int) -> dict[str, float]:
    assert method.bundle is not None
    device, loaded, bundle = work.bench.device, work.loaded, method.bundle
    single = method.model_copy(update={"samples": 1, "steps": steps or method.steps})
    settings = method_settings(single, loaded, seed=0)
    found = _named(TOTAL, timed(lambda: work.bench.reconstruct(loaded, bundle, settings=settings), device, repeats))
    engine = work.bench.engine(bundle, settings)
    if isinstance(engine, ModelEngine):
        found |= _parts(engine.model, work.prepared.batch.to(device), steps, settings.sampler, repeats)
    return found


def _parts(model: TensorLDM, batch: Batch, steps: int, sampler: str, repeats: int) -> dict[str, float]:
    """Reading the scan once, sampling, decoding; sampling is what a draw takes beyond its decoding."""
    device = batch.dwi.device
    x, y, z = batch.mask.shape[1:]
    noise = torch.zeros(model.latent_shape(1, (x, y, z)), device=device)

    def read() -> ScanReading:
        return model.read(**batch.scan)

    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        reading = read()
        encode = timed(read, device, repeats)
        decode = timed(lambda: model.decode(noise, reading.features, size=(x, y, z)), device, repeats)
        draw = timed(lambda: model.draw(reading, noise, num_steps=steps, sampler=sampler), device, repeats)
    sample = Timing(max(0.0, draw.mean - decode.mean), draw.spread)
    return _named(ENCODE, encode) | _named(SAMPLE, sample) | _named(DECODE, decode)


def timed(work: Callable[[], object], device: torch.device, repeats: int) -> Timing:
    """Seconds of a call after one that is not counted; a GPU is waited for."""
    work()
    seconds = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return Timing(statistics.fmean(seconds), statistics.stdev(seconds) if repeats > 1 else 0.0)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def draws(bundle: Path) -> bool:
    """Whether a bundle's method has steps to vary; its index alone is read."""
    return choose(model=bundle).traits.samples


def bench_on(device: str) -> Workbench | None:
    """A bench on a device; None where there is no such device here."""
    if device == "cuda" and not torch.cuda.is_available():
        return None
    return Workbench(torch.device(device))


def _named(metric: str, timing: Timing) -> dict[str, float]:
    return {metric: timing.mean, f"{metric}{SPREAD}": timing.spread}
