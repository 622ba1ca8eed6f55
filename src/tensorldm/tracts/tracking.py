"""A whole brain's streamlines from one tensor image: chunks in parallel, joined in order, gone on with when stopped.

Finished chunks wait in a hidden folder whose name holds a fingerprint of everything that decides them, so a run that
was stopped goes on where it was, and a changed tensor or setting starts anew.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from tensorldm import __version__, bounded
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_json
from tensorldm.imaging.header import SUFFIXES
from tensorldm.imaging.tensor_files import read_convention, read_tensor
from tensorldm.imaging.volume import Space
from tensorldm.shapes import MaskImage
from tensorldm.tracts.engine import Engine, TensorField
from tensorldm.tracts.harmonics import MAX_ORDER
from tensorldm.tracts.odf import LEAST_SHARE, SHARPENING
from tensorldm.tracts.seeds import SeedChunk, draw_seeds
from tensorldm.tracts.settings import TrackSettings
from tensorldm.tracts.tck import join_tck, read_tck, write_tck
from tensorldm.tracts.trx import write_trx

ODF_NOTES: Final = {"Model": "tensor ODF", "Power": SHARPENING, "Order": MAX_ORDER, "LeastEigenvalueShare": LEAST_SHARE}
FINGERPRINT_LETTERS: Final = 16

Watch = Callable[[int, int], None]
"""Hears how many chunks are there, of how many."""


@dataclass(frozen=True)
class Tractogram:
    """Where a tractogram lies, and how many streamlines it has."""

    tck: Path
    trx: Path
    sidecar: Path
    streamlines: int
    seeds: int
    was_there: bool
    """The same was made before, and nothing was done."""


def read_field(path: Path, mask: MaskImage, *, space: Space, convention: str | None = None) -> TensorField:
    """A tensor image for tracking inside a mask on the grid ``space``, cropped to it."""
    image = read_tensor(path, convention=read_convention(path, default=convention))
    if not image.space.same_grid(space):
        raise DataError(
            f"{path}: its grid of {image.space.shape} voxels is not that of the mask ({space.shape} voxels, or another "
            "place in the world). Give a mask on the tensor's grid."
        )
    if not np.isfinite(image.data[mask]).all():
        raise DataError(f"{path}: tensors in the mask are NaN or infinite. Mend the tensor, or shrink the mask.")
    return TensorField(image.data.astype(np.float32), mask, image.space).cropped()


def track_field(
    field: TensorField,
    target: Path,
    *,
    settings: TrackSettings,
    engine: Engine,
    workers: int = 1,
    notes: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> Tractogram:
    """Track a field into ``target`` with ``.tck``, ``.trx`` and ``.json`` added, unless the same is there already."""
    _refuse_image(target)
    fingerprint = _fingerprint(field, settings, engine)
    tck, trx, sidecar = (target.with_name(f"{target.name}{suffix}") for suffix in (".tck", ".trx", ".json"))
    known = _read_notes(sidecar)
    count = known.get("Streamlines")
    if known.get("Fingerprint") == fingerprint and isinstance(count, int) and tck.is_file() and trx.is_file():
        return Tractogram(tck, trx, sidecar, count, settings.seeds, was_there=True)
    parts = target.with_name(f".{target.name}.{fingerprint}.parts")
    for stale in target.parent.glob(f".{target.name}.*.parts"):
        if stale != parts:
            shutil.rmtree(stale, ignore_errors=True)
    chunks = draw_seeds(field.mask, seeds=settings.seeds, seed=settings.seed)
    paths = [parts / f"chunk-{chunk.index:05d}.tck" for chunk in chunks]
    wanted = dict(zip(paths, chunks, strict=True))
    _track_missing(field, wanted, settings, engine, workers, watch or (lambda *_: None))
    sidecar.unlink(missing_ok=True)  # it vouches for the files, which are replaced now
    header = {"method": settings.algorithm, "engine": engine.version}
    count = join_tck(tck, paths, notes=header)
    write_trx(trx, read_tck(tck), space=field.space)
    known = _notes(field, settings, engine, chunks) | {"Streamlines": count, "Fingerprint": fingerprint}
    write_json(sidecar, {**(notes or {}), **known})
    shutil.rmtree(parts, ignore_errors=True)
    return Tractogram(tck, trx, sidecar, count, settings.seeds, was_there=False)


def _refuse_image(target: Path) -> None:
    """An image of the same name has the same sidecar, which says how its tensors are stored: it is not for us."""
    beside = (target.with_name(f"{target.name}{suffix}") for suffix in SUFFIXES)
    image = next((path for path in beside if path.is_file()), None)
    if image is not None:
        raise DataError(
            f"{image}: its sidecar would be replaced by that of the streamlines, which have the same name. "
            "Choose another folder with --out."
        )


def _track_missing(
    field: TensorField,
    wanted: Mapping[Path, SeedChunk],
    settings: TrackSettings,
    engine: Engine,
    workers: int,
    watch: Watch,
) -> None:
    missing = {path: chunk for path, chunk in wanted.items() if not path.is_file()}
    done = len(wanted) - len(missing)
    watch(done, len(wanted))
    if not missing:
        return
    with TemporaryDirectory(prefix="tensorldm-") as scratch, ThreadPoolExecutor(workers) as pool:
        track = engine.prepare(field, settings, scratch=Path(scratch))
        futures = {pool.submit(track, chunk): path for path, chunk in missing.items()}
        try:
            for future in as_completed(futures):
                write_tck(futures.pop(future), future.result())
                done += 1
                watch(done, len(wanted))
        except BaseException:
            engine.stop()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _fingerprint(field: TensorField, settings: TrackSettings, engine: Engine) -> str:
    decides = {"settings": settings.to_json(), "engine": engine.version, "odf": ODF_NOTES}
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode())
    for array in (field.packed, field.mask, field.space.affine):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:FINGERPRINT_LETTERS]


def _notes(field: TensorField, settings: TrackSettings, engine: Engine, chunks: list[SeedChunk]) -> dict[str, Any]:
    """Everything that makes the same streamlines again."""
    return {
        "GeneratedBy": {"Name": "tensorldm", "Version": __version__},
        "Engine": engine.version,
        "Settings": settings.to_json(),
        "OrientationDistribution": ODF_NOTES,
        "Command": engine.describe(field.space, settings),
        "ChunkRandomSeeds": [chunk.random_seed for chunk in chunks],
    }


def _read_notes(path: Path) -> dict[str, Any]:
    """What an earlier run left; nothing where it is absent or damaged."""
    try:
        found = bounded.read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
