"""How many virtual subjects a second the training stream makes, and where the time goes.

    python benchmarks/cohort_stream.py --device cuda --seconds 20

Needs torch, NumPy and jaxtyping only. The full protocol (18 b=0 + 90 directions) at 96×112×96 unless told otherwise.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from tensorldm.cohort.measurement import measure
from tensorldm.cohort.procedural.source import ProceduralSource
from tensorldm.cohort.protocol import draw_protocol
from tensorldm.cohort.scanner import add_noise, brain_signal, noise_level, scan
from tensorldm.cohort.settings import CohortSettings, ProtocolSettings
from tensorldm.cohort.stream import VirtualStream
from tensorldm.cohort.variation import vary_signal, vary_tissue, ventricle_velocity
from tensorldm.cohort.warp import draw_deformation, mirror_anatomy, warp_anatomy
from tensorldm.rng import generator


def clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def milliseconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    work()
    start = clock(device)
    for _ in range(repeats):
        work()
    return 1000 * (clock(device) - start) / repeats


@torch.no_grad()
def breakdown(stream: VirtualStream, device: torch.device, repeats: int) -> None:
    anatomy, settings = stream.anatomies[0], stream.settings
    protocol = draw_protocol(settings.protocol, generator(0, "protocol"))
    noise = generator(0, "noise", device=device)
    velocity = ventricle_velocity(anatomy, settings.variation, generator=generator(0))
    deformation = draw_deformation(anatomy, settings.warp, generator=generator(0), extra_velocity=velocity)
    head = warp_anatomy(anatomy, deformation)
    signal = brain_signal(head, protocol.bvals, protocol.directions)
    scanned = scan(head, protocol, generator=generator(0), noise_generator=noise)
    sigma = noise_level(head, protocol.snr)
    parts: dict[str, Callable[[], object]] = {
        "mirror": lambda: mirror_anatomy(anatomy),
        "ventricles": lambda: ventricle_velocity(anatomy, settings.variation, generator=generator(0)),
        "deformation": lambda: draw_deformation(
            anatomy, settings.warp, generator=generator(0), extra_velocity=velocity
        ),
        "warp, ppd": lambda: warp_anatomy(anatomy, deformation, reorientation="ppd"),
        "warp, finite strain": lambda: warp_anatomy(anatomy, deformation, reorientation="finite-strain"),
        "tissue": lambda: vary_tissue(head, settings.variation, generator=generator(0)),
        "contrast and bias": lambda: vary_signal(head, settings.variation, generator=generator(0)),
        "protocol": lambda: draw_protocol(settings.protocol, generator(0, "protocol")),
        "signal": lambda: brain_signal(head, protocol.bvals, protocol.directions),
        "noise": lambda: add_noise(signal, sigma, coils=protocol.coils, generator=noise),
        "two fits": lambda: measure(scanned, shape=stream.shape, voxel_size=stream.voxel_size),
        "whole subject": lambda: stream.batch(seed=0, position=1, size=1),
    }
    print(f"{int(head.mask.sum())} voxels, {len(anatomy.fractions)} compartments, {len(protocol.bvals)} volumes")
    for name, work in parts.items():
        print(f"  {name:22s} {milliseconds(work, device, repeats):8.2f} ms")


def throughput(stream: VirtualStream, device: torch.device, *, seconds: float, size: int) -> float:
    stream.batch(seed=0, position=0, size=size)
    start, position = clock(device), 0
    while clock(device) - start < seconds:
        stream.batch(seed=0, position=position, size=size)
        position += size
    return position / (clock(device) - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--anatomies", type=int, default=4)
    parser.add_argument("--shape", type=int, nargs=3, default=(96, 112, 96))
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    x, y, z = arguments.shape
    source = ProceduralSource(shape=(x, y, z), bundles=())
    start = clock(device)
    heads = [source.load(name, device=device) for name in source.names[: arguments.anatomies]]
    print(f"{len(heads)} procedural heads in {clock(device) - start:.1f} s")
    plain = CohortSettings()
    thick = replace(plain, protocol=ProtocolSettings(voxel_mm=(2.0, 2.0, 4.0), blur_mm=(1.0, 2.0)))
    breakdown(VirtualStream(heads, plain, device=device), device, repeats=10 if device.type == "cuda" else 1)
    for name, settings in (("2 mm, 18 + 90 volumes", plain), ("4 mm slices, blurred", thick)):
        stream = VirtualStream(heads, settings, device=device)
        rate = throughput(stream, device, seconds=arguments.seconds, size=arguments.batch)
        print(f"{name}: {rate:.1f} subjects/s")
    if device.type == "cuda":
        print(
            f"{torch.cuda.get_device_name()}, torch {torch.__version__}, "
            f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
        )


if __name__ == "__main__":
    main()
