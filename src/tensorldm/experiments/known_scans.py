"""Virtual subjects in memory, as `reconstruct` would see them, with what is true of every voxel.

The labels of tissue are those of the head before artefacts: distortion moves the images by up to a few millimetres
against them, which blurs the tissues' figures a little.
Axes: v voxel of the mask.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.config import CohortConfig
from tensorldm.cohort.measurement import Measurement, measure
from tensorldm.cohort.settings import CohortSettings
from tensorldm.cohort.sources import open_source
from tensorldm.cohort.stream import VirtualStream
from tensorldm.dti.intensity import robust_b0_scale
from tensorldm.errors import ConfigError, DataError
from tensorldm.reconstruct.engine import WorkingScan
from tensorldm.rng import derive_seed, numpy_generator

COHORT: Final = "cohort:"
CLEAN, FIT = "clean", "fit"
"""Truths: the tensor without noise, and the least-squares fit of all volumes with theirs."""
NO_TISSUE: Final = -1
MOST_PROCEDURAL: Final = 8
"""Procedural heads beside the templates of a split, as in training's validation."""
MARGIN_VOXELS: Final = 2
"""Background kept around the brain, as in a reconstruction."""


@dataclass(frozen=True, eq=False)
class KnownScan:
    """A scan on the CPU, with what is true of every voxel of its mask."""

    name: str
    anatomy: str
    """The independent anatomy behind it."""
    scan: WorkingScan
    truths: Mapping[str, Float[Tensor, "v 6"]]
    tissue: Int[np.ndarray, " v"]
    """Index into ``cohort.anatomy.TISSUES``; ``NO_TISSUE`` where none fills half of the voxel."""

    @property
    def num_directions(self) -> int:
        """Weighted volumes of the input."""
        return int((self.scan.directions.norm(dim=1) > 0).sum())


@dataclass(frozen=True)
class VirtualSplit:
    """The virtual subjects of one split, known by name before any is made."""

    source: AnatomySource
    split: str
    settings: CohortSettings
    seed: int
    dealt: tuple[tuple[str, int], ...]
    """Anatomy and position of each subject, those of one anatomy in a row."""

    def scans(self, device: torch.device, *, without: Collection[tuple[str, int]] = frozenset()) -> Iterator[KnownScan]:
        """Each subject but those of ``without``, made on the device; one anatomy is held at a time."""
        held: tuple[str, VirtualStream] | None = None
        for name, position in (place for place in self.dealt if place not in without):
            if held is None or held[0] != name:
                anatomies = VirtualStream.from_source(self.source, [name], settings=self.settings, device=device)
                held = name, anatomies
            yield _virtual_scan(held[1], seed=derive_seed(self.seed, "known", self.split), position=position)


def open_split(where: str, split: str, *, cohort: CohortConfig, number: int, seed: int) -> VirtualSplit:
    """``number`` subjects of a split of ``cohort:SOURCE``; every anatomy has its turn before one comes again."""
    if not where.startswith(COHORT):
        raise ConfigError(f"--data {where}: only virtual subjects have a known truth. Give {COHORT}SOURCE.")
    name = where.removeprefix(COHORT)
    source = open_source(name, split, settings=cohort, subjects=MOST_PROCEDURAL, bundles=(), option=f"--data {COHORT}")
    if not source.names:
        raise DataError(
            f"--data {where}: it holds no {split} anatomies. Join procedural heads: {COHORT}procedural+{name}."
        )
    return VirtualSplit(source, split, cohort.settings, seed, _deal(source.names, number, cohort.settings, seed))


def _deal(names: Sequence[str], number: int, settings: CohortSettings, seed: int) -> tuple[tuple[str, int], ...]:
    """Positions far enough apart that no two subjects share a head or a draw of the number of directions."""
    scheme = settings.protocol.scheme
    stride = max(settings.scans_per_head, 1 if scheme is None else scheme.group)
    order = numpy_generator(seed, "dealt").permutation(len(names))
    dealt = [(names[order[index % len(names)]], index * stride) for index in range(number)]
    return tuple(sorted(dealt))


def _virtual_scan(stream: VirtualStream, *, seed: int, position: int) -> KnownScan:
    subject = stream.subject(seed=seed, position=position)
    with torch.no_grad():
        measured = measure(subject.scan, shape=stream.shape, voxel_size=stream.voxel_size)
    if not bool(measured.mask.any()):
        raise DataError(f"The virtual subject {subject.anatomy.name} at {position} shows no brain. Give another seed.")
    fractions, tissue = subject.anatomy.tissue[:, measured.mask].max(dim=0)
    protocol = subject.scan.protocol
    chosen = list(protocol.sparse)
    name = f"{subject.anatomy.name}@{position}"
    return KnownScan(
        name=name,
        anatomy=subject.anatomy.source,
        scan=_working_scan(
            measured,
            protocol.bvals[chosen],
            protocol.directions[chosen],
            voxel_size=stream.voxel_size,
            key=f"{seed}/{name}",
        ),
        truths={CLEAN: _inside(measured.clean, measured.mask), FIT: _inside(measured.reference, measured.mask)},
        tissue=torch.where(fractions >= 0.5, tissue, NO_TISSUE).to(torch.int8).cpu().numpy(),
    )


def _working_scan(
    measured: Measurement, bvals: Tensor, directions: Tensor, *, voxel_size: tuple[float, float, float], key: str
) -> WorkingScan:
    box = _around(measured.mask)
    mask, dwi = measured.mask[box].cpu(), measured.dwi[(slice(None), *box)].cpu()
    return WorkingScan(
        dwi=dwi,
        bvals=bvals.double().cpu(),
        directions=directions.double().cpu(),
        mask=mask,
        voxel_size=voxel_size,
        # A bone-only view has scale 0; its volumes are zero, and stay so.
        b0_scale=float(robust_b0_scale(dwi[0], mask).clamp(min=1e-6)),
        key=hashlib.sha256(key.encode()).hexdigest(),
    )


def _around(mask: Bool[Tensor, "x y z"]) -> tuple[slice, slice, slice]:
    places = mask.nonzero()
    first = (places.amin(dim=0) - MARGIN_VOXELS).clamp(min=0).tolist()
    last = (places.amax(dim=0) + MARGIN_VOXELS + 1).tolist()
    x, y, z = (slice(low, min(high, side)) for low, high, side in zip(first, last, mask.shape, strict=True))
    return x, y, z


def _inside(components: Float[Tensor, "6 x y z"], mask: Bool[Tensor, "x y z"]) -> Float[Tensor, "v 6"]:
    return rearrange(components[:, mask], "d v -> v d").double().cpu()
