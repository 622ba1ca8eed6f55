"""Streamlines through MRtrix3's tckgen: iFOD2 or iFOD1 on the sharpened ODF, FACT on v1."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch

from tensorldm.imaging.frames import tensor_to_frame
from tensorldm.imaging.nifti import write_mask
from tensorldm.imaging.volume import Space, Volume
from tensorldm.tracts.engine import TensorField, Track
from tensorldm.tracts.mif import write_mif
from tensorldm.tracts.mrtrix import Mrtrix
from tensorldm.tracts.odf import principal_peak, tensor_odf
from tensorldm.tracts.seeds import SeedChunk
from tensorldm.tracts.settings import ALGORITHMS, DETERMINISTIC, TrackSettings
from tensorldm.tracts.streamlines import Streamlines
from tensorldm.tracts.tck import read_tck

ATTEMPTS_PER_SEED: Final = 100
"""A lobe that is high enough covers a tenth of the sphere: who has not hit it in a hundred throws has none."""


@dataclass(frozen=True)
class MrtrixEngine:
    """tckgen on files that are written for it: orientations and mask once, the seeds of each chunk as an image."""

    program: Mrtrix

    @property
    def name(self) -> str:
        """As ``--engine`` has it."""
        return "mrtrix"

    @property
    def version(self) -> str:
        """MRtrix3's."""
        return f"MRtrix3 {self.program.version}"

    def describe(self, space: Space, settings: TrackSettings) -> str:
        """With the names that files have while it runs."""
        words = _arguments(Path("orientations.mif"), Path("seeds.nii"), Path("mask.nii"), Path("chunk.tck"))
        return shlex.join(["tckgen", *words, *_options(space, settings), "-nthreads", "0"])

    def prepare(self, field: TensorField, settings: TrackSettings, *, scratch: Path) -> Track:
        """Write what every chunk reads; uncompressed, so that processes share it."""
        orientations, mask = scratch / "orientations.mif", scratch / "mask.nii"
        write_mif(orientations, _orientations(field, settings))
        write_mask(mask, field.mask, space=field.space)
        options = _options(field.space, settings)

        def track(chunk: SeedChunk) -> Streamlines:
            seeds, tracks = scratch / f"seeds-{chunk.index}.nii", scratch / f"tracks-{chunk.index}.tck"
            cells, fine = chunk.image(field.space)
            write_mask(seeds, cells, space=fine)
            try:
                words = [*_arguments(orientations, seeds, mask, tracks), *options, "-force"]
                self.program.run(words, seed=chunk.random_seed)
                return read_tck(tracks) if not self.program.stop.is_set() else Streamlines.of([])
            finally:
                seeds.unlink(missing_ok=True)
                tracks.unlink(missing_ok=True)

        return track

    def stop(self) -> None:
        """End the running commands."""
        self.program.stop.set()


def _orientations(field: TensorField, settings: TrackSettings) -> Volume:
    """In scanner axes, as MRtrix3 takes all directions."""
    inside = torch.from_numpy(tensor_to_frame(field.packed[field.mask], field.space, target="scanner"))
    values = principal_peak(inside) if settings.algorithm == DETERMINISTIC else tensor_odf(inside)
    image = np.zeros((*field.space.shape, values.shape[-1]), dtype=np.float32)
    image[field.mask] = values.numpy()
    return Volume(image, field.space)


def _arguments(orientations: Path, seeds: Path, mask: Path, tracks: Path) -> list[str]:
    return [str(orientations), str(tracks), "-seed_grid_per_voxel", str(seeds), "1", "-mask", str(mask)]


def _options(space: Space, settings: TrackSettings) -> list[str]:
    values = {
        "algorithm": ALGORITHMS[settings.algorithm],
        "step": f"{settings.step_mm(space.voxel_size):.6g}",
        "angle": f"{settings.max_angle_degrees:g}",
        "cutoff": f"{settings.cutoff:g}",
        "minlength": f"{settings.min_length_mm:g}",
        "maxlength": f"{settings.max_length_mm:g}",
        "max_attempts_per_seed": str(ATTEMPTS_PER_SEED),
        "select": "0",
    }
    return [word for key, value in values.items() for word in (f"-{key}", value)]
