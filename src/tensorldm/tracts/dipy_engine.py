"""Streamlines through DIPY's trackers, for whoever has no MRtrix3: the same orientations, seeds and files.

DIPY's probabilistic tracker is first-order: it draws each step from the ODF where it stands, where iFOD2 draws whole
arcs. Bundles come out alike, streamlines do not; compare methods within one engine only.
"""

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.dti.maps import fractional_anisotropy
from tensorldm.errors import ConfigError
from tensorldm.imaging.volume import Space
from tensorldm.tracts.engine import TensorField, Track
from tensorldm.tracts.odf import tensor_odf
from tensorldm.tracts.regions import Region, look_up
from tensorldm.tracts.seeds import SeedChunk
from tensorldm.tracts.settings import DETERMINISTIC, PROBABILISTIC, TrackSettings
from tensorldm.tracts.streamlines import Streamlines

SPHERE: Final = "repulsion724"
"""DIPY's directions to choose from: neighbours are 5° apart."""
LEAST_SHARE_OF_PEAK: Final = 0.1
"""DIPY's default: directions lower than this share of the highest are not drawn."""
STEP_ANGLE_DEGREES: Final = 30.0
"""The sharpest turn at one step of half a voxel; 45° would let a first-order tracker turn round in a voxel."""


class DipyEngine:
    """DIPY's trackers with one thread."""

    def __init__(self) -> None:
        self._stop = Event()

    @property
    def name(self) -> str:
        """As ``--engine`` has it."""
        return "dipy"

    @property
    def version(self) -> str:
        """DIPY's."""
        return f"DIPY {importlib.metadata.version('dipy')}"

    def describe(self, space: Space, settings: TrackSettings) -> str:
        """The call's own numbers."""
        return (
            f"dipy.tracking.tracker.{settings.algorithm}_tracking(step_size={settings.step_mm(space.voxel_size):.6g}, "
            f"max_angle={STEP_ANGLE_DEGREES:g}, pmf_threshold={LEAST_SHARE_OF_PEAK:g}, "
            f"min_len={settings.min_length_mm:g}, max_len={settings.max_length_mm:g}, sphere={SPHERE}), "
            f"until FA < {settings.cutoff:g}"
        )

    def prepare(self, field: TensorField, settings: TrackSettings, *, scratch: Path) -> Track:  # noqa: ARG002
        """Orientations in image axes, as DIPY takes them; nothing is written."""
        from dipy.data import get_sphere
        from dipy.tracking import tracker
        from dipy.tracking.stopping_criterion import ThresholdStoppingCriterion

        if settings.algorithm not in (PROBABILISTIC, DETERMINISTIC):
            raise ConfigError(
                f"--algorithm {settings.algorithm} needs MRtrix3. With DIPY give {PROBABILISTIC} or {DETERMINISTIC}."
            )
        run: Callable[..., Any] = tracker.probabilistic_tracking
        if settings.algorithm == DETERMINISTIC:
            run = tracker.deterministic_tracking
        inside = torch.from_numpy(np.ascontiguousarray(field.packed[field.mask]))
        sphere = get_sphere(name=SPHERE)
        criterion = _on_grid(field, fractional_anisotropy(inside).double())
        orientations = _on_grid(field, tensor_odf(inside.double()))
        stopping = ThresholdStoppingCriterion(criterion, settings.cutoff)

        def track(chunk: SeedChunk) -> Streamlines:
            if self._stop.is_set():
                return Streamlines.of([])
            found = run(
                chunk.positions(field.space),
                stopping,
                field.space.affine,
                sh=orientations,
                sphere=sphere,
                basis_type="tournier07",
                legacy=False,
                step_size=settings.step_mm(field.space.voxel_size),
                voxel_size=np.array(field.space.voxel_size),
                max_angle=STEP_ANGLE_DEGREES,
                pmf_threshold=LEAST_SHARE_OF_PEAK,
                min_len=settings.min_length_mm,
                max_len=settings.max_length_mm,
                nbr_threads=1,
                random_seed=chunk.random_seed,
            )
            lines = Streamlines.of([np.asarray(line, dtype=np.float32) for line in found])
            within = _cut_to(Region(field.mask, field.space), lines)
            return within.chosen(within.lengths_mm >= settings.min_length_mm)

        return track

    def stop(self) -> None:
        """No further chunk is begun; the running one takes its seconds."""
        self._stop.set()


def _cut_to(region: Region, lines: Streamlines) -> Streamlines:
    """The longest piece of each streamline inside the mask: DIPY stops between voxels, tckgen at the mask."""
    inside = look_up(region, lines.points)
    pieces = []
    for start, stop in zip(lines.offsets[:-1], lines.offsets[1:], strict=True):
        turns = np.flatnonzero(np.diff(np.concatenate([[False], inside[start:stop], [False]]).astype(np.int8)))
        if len(turns):
            longest = int(np.argmax(turns[1::2] - turns[::2]))
            pieces.append(lines.points[start + turns[2 * longest] : start + turns[2 * longest + 1]])
    return Streamlines.of(pieces)


def _on_grid(field: TensorField, values: torch.Tensor) -> Float[ndarray, "x y z *k"]:
    image = np.zeros((*field.space.shape, *values.shape[1:]))
    image[field.mask] = values.numpy()
    return image
