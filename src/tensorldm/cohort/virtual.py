"""A virtual subject: an anatomy varied by a seed, a protocol drawn by the same seed, and the scan.

The random parts are named, so that changing the settings of one leaves the others as they were.
"""

from dataclasses import dataclass

import torch

from tensorldm.cohort.anatomy import Anatomy
from tensorldm.cohort.draws import uniform
from tensorldm.cohort.fluid import vary_fluid
from tensorldm.cohort.grain import add_grain
from tensorldm.cohort.lesions import add_lesions
from tensorldm.cohort.protocol import Protocol, draw_protocol
from tensorldm.cohort.rim import add_rim
from tensorldm.cohort.scanner import Scan, scan
from tensorldm.cohort.scheme import draw_count
from tensorldm.cohort.settings import CohortSettings
from tensorldm.cohort.variation import vary_signal, vary_tissue, ventricle_velocity
from tensorldm.cohort.view import cut_slab, draw_rim, erode
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
    head = position // settings.scans_per_head
    return scan_head(
        vary_head(anatomy, settings, seed=seed, position=head, with_bundles=with_bundles),
        settings,
        seed=seed,
        position=position,
    )


@torch.no_grad()
def scan_head(varied: Anatomy, settings: CohortSettings, *, seed: int, position: int) -> VirtualSubject:
    """A head that was varied before, in the scan of a seed and a position."""
    protocol = draw_subject_protocol(settings, seed=seed, position=position)
    scanned = scan(
        varied,
        protocol,
        generator=generator(seed, "motion", position),
        noise_generator=generator(seed, "noise", position, device=varied.s0.device),
    )
    return VirtualSubject(varied, scanned)


def draw_subject_protocol(settings: CohortSettings, *, seed: int, position: int) -> Protocol:
    """The acquisition of one subject; subjects of one group have the same number of input volumes."""
    scheme = settings.protocol.scheme
    drawing = generator(seed, "protocol", position)
    if scheme is None:
        return draw_protocol(settings.protocol, drawing, artefacts=settings.artefacts)
    count = draw_count(scheme, generator(seed, "input", position // scheme.group))
    return draw_protocol(settings.protocol, drawing, num_directions=count, artefacts=settings.artefacts)


def vary_head(
    anatomy: Anatomy, settings: CohortSettings, *, seed: int, position: int, with_bundles: bool = False
) -> Anatomy:
    """Another head from an anatomy: mirrored, posed and warped, then other tissue, lesions, signal, rim and view."""
    if settings.warp.mirror and uniform(generator(seed, "mirror", position), (0.0, 1.0)) < 0.5:
        anatomy = mirror_anatomy(anatomy)
    ventricles = ventricle_velocity(anatomy, settings.variation, generator=generator(seed, "ventricles", position))
    deformation = draw_deformation(
        anatomy, settings.warp, generator=generator(seed, "warp", position), extra_velocity=ventricles
    )
    varied = warp_anatomy(anatomy, deformation, reorientation=settings.warp.reorientation, with_bundles=with_bundles)
    varied = vary_fluid(varied, settings.detail, generator=generator(seed, "fluid", position))
    varied = vary_tissue(varied, settings.variation, generator=generator(seed, "tissue", position))
    varied = add_grain(
        varied,
        settings.detail,
        generator=generator(seed, "grain", position),
        field_generator=generator(seed, "grain", position, device=varied.s0.device),
    )
    varied = add_lesions(varied, settings.variation, generator=generator(seed, "lesions", position))
    varied = vary_signal(varied, settings.variation, generator=generator(seed, "signal", position))
    bone, layers = draw_rim(settings.artefacts, settings.variation.rim, generator=generator(seed, "mask", position))
    varied = add_rim(erode(varied, layers), bone, generator=generator(seed, "rim", position))
    return cut_slab(varied, settings.artefacts, generator=generator(seed, "slab", position))
