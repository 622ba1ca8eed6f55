"""A virtual subject: an anatomy varied by a seed, a protocol drawn by the same seed, and the scan.

The random parts are named, so that changing the settings of one leaves the others as they were.
"""

from dataclasses import dataclass

import torch

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.draws import uniform
from tensorldm.cohort.lesions import add_lesions
from tensorldm.cohort.protocol import Protocol, draw_protocol
from tensorldm.cohort.rim import add_rim
from tensorldm.cohort.scanner import Scan, scan
from tensorldm.cohort.settings import CohortSettings
from tensorldm.cohort.variation import vary_signal, vary_tissue, ventricle_velocity
from tensorldm.cohort.warp import draw_deformation, mirror_anatomy, warp_anatomy
from tensorldm.rng import generator


@dataclass(frozen=True)
class VirtualSubject:
    """What was scanned, how, and what came out."""

    anatomy: Anatomy
    scan: Scan


@torch.no_grad()
def make_subject(
    anatomy: Anatomy, settings: CohortSettings, *, seed: int, position: int, with_bundles: bool = False
) -> VirtualSubject:
    """The virtual subject of a seed and a position: the same each time, on the anatomy's device.

    Head and protocol are the same on every device; noise is drawn on the device and is the same on each of a kind.
    """
    varied = vary_head(anatomy, settings, seed=seed, position=position, with_bundles=with_bundles)
    protocol = draw_subject_protocol(settings, seed=seed, position=position)
    scanned = scan(
        varied,
        protocol,
        generator=generator(seed, "motion", position),
        noise_generator=generator(seed, "noise", position, device=varied.s0.device),
    )
    return VirtualSubject(varied, scanned)


def draw_subject_protocol(settings: CohortSettings, *, seed: int, position: int) -> Protocol:
    """The acquisition of one subject."""
    return draw_protocol(settings.protocol, generator(seed, "protocol", position))


def vary_head(
    anatomy: Anatomy, settings: CohortSettings, *, seed: int, position: int, with_bundles: bool = False
) -> Anatomy:
    """Another head from an anatomy: mirrored, posed and warped, then other tissue, lesions, signal and rim."""
    if settings.warp.mirror and uniform(generator(seed, "mirror", position), (0.0, 1.0)) < 0.5:
        anatomy = mirror_anatomy(anatomy)
    ventricles = ventricle_velocity(anatomy, settings.variation, generator=generator(seed, "ventricles", position))
    deformation = draw_deformation(
        anatomy, settings.warp, generator=generator(seed, "warp", position), extra_velocity=ventricles
    )
    varied = warp_anatomy(anatomy, deformation, reorientation=settings.warp.reorientation, with_bundles=with_bundles)
    varied = vary_tissue(varied, settings.variation, generator=generator(seed, "tissue", position))
    varied = add_lesions(varied, settings.variation, generator=generator(seed, "lesions", position))
    varied = vary_signal(varied, settings.variation, generator=generator(seed, "signal", position))
    return add_rim(varied, settings.variation, generator=generator(seed, "rim", position))
