"""Judged subjects on the disk, so that a calibration that was stopped goes on where it was.

One file a subject, which appears whole or not at all. It says what it was judged with: after a change of model,
sampling, cohort or program it is as good as absent, and so is a file that cannot be read.
"""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from jaxtyping import Shaped
from numpy import ndarray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from tensorldm.experiments.coverage import Observed
from tensorldm.imaging.atomic import write_bytes
from tensorldm.reconstruct.calibration import Judged, JudgedPart

ABOUT: Final = "about"
SUBJECT: Final = "subject"
PARTS: Final = ("fa", "md", "v1")
Array = Shaped[ndarray, " v"]


@dataclass(frozen=True)
class KeptObservations:
    """The observations in one folder that were made in one way."""

    folder: Path
    made_with: Mapping[str, Any]
    """All that decides what would be observed of a subject, in words and numbers that JSON knows."""

    def read(self, key: str) -> Observed | None:
        """What was kept under a key, if it was made in this way and is whole."""
        with suppress(OSError, SafetensorError, ValueError, KeyError), safe_open(self._path(key), "numpy") as stored:
            notes = stored.metadata() or {}
            if notes[ABOUT] == self._about(key):
                arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118  not a dict
                return _observed(json.loads(notes[SUBJECT]), arrays)
        return None

    def write(self, key: str, observed: Observed) -> None:
        """Keep a subject, whole or not at all."""
        notes = {ABOUT: self._about(key), SUBJECT: json.dumps(_notes(observed))}
        write_bytes(self._path(key), save(_arrays(observed), metadata=notes))

    def clear(self) -> None:
        """Forget all: what was to be made of them stands."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _about(self, key: str) -> str:
        return json.dumps({**self.made_with, "key": key}, sort_keys=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{quote(key, safe='')}.safetensors"


def _notes(observed: Observed) -> dict[str, Any]:
    return {
        "name": observed.name,
        "anatomy": observed.anatomy,
        "num_directions": observed.num_directions,
        "num_samples": {truth: judged.num_samples for truth, judged in observed.judged.items()},
    }


def _arrays(observed: Observed) -> dict[str, Array]:
    arrays: dict[str, Array] = {"tissue": observed.tissue}
    for truth, judged in observed.judged.items():
        arrays |= {f"{truth}/{name}": getattr(judged, name) for name in ("mean_fa", "mean_md", "directed")}
        for name in PARTS:
            part: JudgedPart = getattr(judged, name)
            arrays |= {f"{truth}/{name}/half_width": part.half_width, f"{truth}/{name}/error": part.error}
    return {name: np.ascontiguousarray(values) for name, values in arrays.items()}


def _observed(notes: Mapping[str, Any], arrays: Mapping[str, Array]) -> Observed:
    judged = {
        truth: Judged(
            num_samples=number,
            mean_fa=arrays[f"{truth}/mean_fa"],
            mean_md=arrays[f"{truth}/mean_md"],
            directed=arrays[f"{truth}/directed"],
            **{
                name: JudgedPart(arrays[f"{truth}/{name}/half_width"], arrays[f"{truth}/{name}/error"])
                for name in PARTS
            },
        )
        for truth, number in notes["num_samples"].items()
    }
    return Observed(notes["name"], notes["anatomy"], notes["num_directions"], judged, arrays["tissue"])
