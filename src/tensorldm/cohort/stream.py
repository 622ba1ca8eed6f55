"""An endless stream of virtual subjects for training, made where they are used.

What stands at a position depends on the seed and the position alone, and what is remembered is only what would be made
again: a run that is resumed, or split over batches of another size, sees the same subjects.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import floor

import torch

from tensorldm.batch import Batch, mask_centre
from tensorldm.cohort.anatomy import Anatomy, AnatomySource
from tensorldm.cohort.axes import Shape
from tensorldm.cohort.draws import uniform
from tensorldm.cohort.measurement import measure
from tensorldm.cohort.refining import refine
from tensorldm.cohort.settings import CohortSettings
from tensorldm.cohort.virtual import VirtualSubject, scan_head, vary_head
from tensorldm.dti.intensity import robust_b0_scale
from tensorldm.errors import ConfigError, DataError
from tensorldm.rng import generator


class VirtualStream:
    """Virtual subjects by position, from anatomies held on one device."""

    def __init__(
        self,
        anatomies: Sequence[Anatomy],
        settings: CohortSettings,
        *,
        device: torch.device | str = "cpu",
        between: Callable[[], None] = lambda: None,
    ) -> None:
        assert anatomies, "a stream needs at least one anatomy"
        grids = {(tuple(anatomy.s0.shape), anatomy.voxel_size) for anatomy in anatomies}
        if len(grids) > 1:
            found = " and ".join(f"{'×'.join(map(str, shape))} at {size[0]:g} mm" for shape, size in sorted(grids))
            raise DataError(
                f"The anatomies lie on different grids ({found}). Set shape and voxel_mm so that all agree."
            )
        refined = []
        for anatomy in anatomies:
            between()
            refined.append(refine(to_device(anatomy, device), settings.detail))
        self.anatomies = tuple(refined)
        self.settings = settings
        self._last: tuple[tuple[int, int], Anatomy] | None = None
        x, y, z = anatomies[0].s0.shape
        self.shape: Shape = (x, y, z)
        self.voxel_size = anatomies[0].voxel_size

    @classmethod
    def from_source(
        cls,
        source: AnatomySource,
        names: Sequence[str],
        *,
        settings: CohortSettings,
        device: torch.device | str = "cpu",
        between: Callable[[], None] = lambda: None,
    ) -> "VirtualStream":
        """A stream over some anatomies of a source; ``between`` is called before each, and ends it by raising."""
        loaded = []
        for name in names:
            between()
            loaded.append(source.load(name, device=device))
        return cls(loaded, settings, device=device, between=between)

    @property
    def num_sources(self) -> int:
        """How many independent anatomies there are; reported with every result."""
        return len({anatomy.source for anatomy in self.anatomies})

    def subject(self, *, seed: int, position: int) -> VirtualSubject:
        """The subject at a position, before it is measured."""
        return scan_head(self._head(seed, position), self.settings, seed=seed, position=position)

    @torch.no_grad()
    def batch(self, *, seed: int, position: int, size: int) -> Batch:
        """The subjects at ``position``, ``position + 1``, … measured; a position is the same in every batch size."""
        with _exact_products():
            return _concatenate([self._item(seed, position + index) for index in range(size)])

    def _head(self, seed: int, position: int) -> Anatomy:
        """The head at a position; the last one is at hand, because neighbours may share it."""
        key = seed, position // self.settings.scans_per_head
        if self._last is None or self._last[0] != key:
            with torch.no_grad():
                self._last = key, vary_head(self._anatomy(*key), self.settings, seed=seed, position=key[1])
        return self._last[1]

    def _anatomy(self, seed: int, head: int) -> Anatomy:
        drawn = uniform(generator(seed, "anatomy", head), (0.0, 1.0))
        return self.anatomies[floor(drawn * len(self.anatomies))]

    def _item(self, seed: int, position: int) -> Batch:
        subject = self.subject(seed=seed, position=position)
        measured = measure(
            subject.scan, shape=self.shape, voxel_size=self.voxel_size, noise=self.settings.reference_noise
        )
        protocol = subject.scan.protocol
        chosen = list(protocol.sparse)
        # A scan without a brain in view has scale 0; its volumes are zero, and stay so.
        scale = robust_b0_scale(measured.dwi[0], measured.mask).clamp(min=1e-6)
        return Batch(
            dwi=(measured.dwi / scale)[None],
            bvals=protocol.bvals[chosen].float().cpu()[None],
            directions=protocol.directions[chosen].float().cpu()[None],
            components=measured.reference[None],
            clean=measured.clean[None],
            mask=measured.mask[None],
            voxel_size=torch.tensor([self.voxel_size]),
            centre=mask_centre(measured.mask[None]).cpu(),
            subjects=(f"{subject.anatomy.name}@{seed}-{position}",),
        )


def to_device(anatomy: Anatomy, device: torch.device | str) -> Anatomy:
    """The volumes of an anatomy on a device; bundles are left out, a stream does not use them."""
    return Anatomy(
        name=anatomy.name,
        source=anatomy.source,
        tensors=anatomy.tensors.to(device),
        fractions=anatomy.fractions.to(device),
        s0=anatomy.s0.to(device),
        tissue=anatomy.tissue.to(device),
        mask=anatomy.mask.to(device),
        voxel_size=anatomy.voxel_size,
    )


@contextmanager
def _exact_products() -> Iterator[None]:
    """Matrix products in full float32: training may allow TF32, whose three digits are too few for a tensor fit."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _concatenate(items: Sequence[Batch]) -> Batch:
    counts = sorted({item.dwi.shape[1] for item in items})
    if len(counts) > 1:
        raise ConfigError(
            f"The subjects {items[0].subjects[0]} to {items[-1].subjects[0]} have {counts[0]} to {counts[-1]} input "
            "volumes, and a batch has one number. Let the batch size divide protocol.scheme.group."
        )
    return Batch(
        dwi=torch.cat([item.dwi for item in items]),
        bvals=torch.cat([item.bvals for item in items]),
        directions=torch.cat([item.directions for item in items]),
        components=torch.cat([item.components for item in items]),
        clean=torch.cat([item.clean for item in items]),
        mask=torch.cat([item.mask for item in items]),
        voxel_size=torch.cat([item.voxel_size for item in items]),
        centre=torch.cat([item.centre for item in items]),
        subjects=tuple(name for item in items for name in item.subjects),
    )
