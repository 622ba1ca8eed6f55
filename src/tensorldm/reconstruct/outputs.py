"""A reconstruction as files: all of them, or none.

Everything is written into a hidden folder inside the output folder's parent and moved when the last file is there, so
that an interruption, a full disk or a bug leaves no half of a result.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.components import CONVENTIONS
from tensorldm.errors import DataError
from tensorldm.imaging.atomic import write_json
from tensorldm.imaging.map_files import ANISOTROPY, DIFFUSIVITY, DIRECTION, MAPS
from tensorldm.imaging.nifti import write_mask, write_volume
from tensorldm.imaging.tensor_files import Provenance, sidecar_path, write_tensor
from tensorldm.imaging.volume import Volume
from tensorldm.reconstruct.naming import IMAGE, Naming
from tensorldm.reconstruct.result import Reconstruction

_IN_THE_WAY: Final = {errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}
MODEL_PARAMETERS: Final = ("Mean", "SPD", "Grid", "Seed", "Samples", "Steps", "Sampler")
BRAIN: Final = {"Type": "Brain", "Description": "the brain: where there are tensors"}
SCANNER_UNITS: Final = {"Units": "arbitrary"}
EXTRA: Final[Mapping[str, Mapping[str, Any]]] = {
    "prior_share": {**ANISOTROPY, "Description": "share of the anisotropy that no measured direction sees, 0 to 1"},
    "prior_sd": {**DIFFUSIVITY, "Description": "SD over the samples of the part that no measured direction sees"},
    "consistency": {**ANISOTROPY, "Description": "root mean squared residual of the input signals over the noise"},
    "spd_touched": {**ANISOTROPY, "Description": "1 where the method's own tensor was not positive definite"},
    "fa_mean": {**ANISOTROPY, "Description": "mean of the samples' FA, the FA that is expected"},
    "fa_low": {**ANISOTROPY, "Description": "lower end of the FA interval"},
    "fa_high": {**ANISOTROPY, "Description": "upper end of the FA interval"},
    "md_low": {**DIFFUSIVITY, "Description": "lower end of the MD interval"},
    "md_high": {**DIFFUSIVITY, "Description": "upper end of the MD interval"},
    "v1_cone": {"Units": "degree", "Description": "half the opening angle of the cone about v1"},
}
"""What the sidecar says of each map that is no function of the tensor."""
NAMES: Final = (
    *("tensor", *MAPS, "v2", "v3", "l1", "l2", "l3", "s0", "mask"),
    *EXTRA,
)
"""Every image that a reconstruction may leave."""


def write_result(
    result: Reconstruction,
    naming: Naming,
    *,
    root: Path,
    convention: str,
    notes: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> list[Path]:
    """Write tensor, maps, mask and sidecars below ``root``.

    ``notes`` go into the tensor's sidecar as well, ``shared`` into every one.
    """
    tensor, mask = root / naming.image("tensor"), root / naming.image("mask")
    _write_tensor(result, tensor, mask, convention, {**shared, **notes})
    if naming.model_sidecar is not None:
        write_json(root / naming.model_sidecar, {**shared, "Model": _model(result)})
        write_json(sidecar_path(mask), {**shared, **BRAIN})
    write_mask(mask, result.mask, space=result.space)
    written = [tensor, mask]
    for name, (image, note) in _images(result, convention):
        path = root / naming.image(name)
        write_json(sidecar_path(path), {**shared, **note})
        write_volume(path, Volume(image, result.space))
        written.append(path)
    return written


@contextmanager
def appearing(out: Path) -> Iterator[Path]:
    """A hidden folder that becomes ``out`` when the block ends well, and vanishes when it does not.

    Where ``out`` exists its files are replaced one by one, the tensor last. A worker that lost its scheduler may still
    be at work when the next run sweeps its folder away; what it then goes on to write, in a folder made anew by the
    next file, is a part of a result and never appears.
    """
    where = _existing_parent(out)
    hidden = where / f".{out.name or 'tensorldm'}.{secrets.token_hex(4)}.part"
    try:
        hidden.mkdir()
        itself = os.open(hidden, os.O_RDONLY)
    except OSError as error:
        raise _cannot_write(out, error) from error
    try:
        with _told_as(hidden, out):
            yield hidden
        try:
            if not os.path.samestat(hidden.stat(), os.fstat(itself)):
                raise FileNotFoundError(errno.ENOENT, "another run cleared away what was being written")
            out.parent.mkdir(parents=True, exist_ok=True)
            _appear(hidden, out)
        except OSError as error:
            raise _cannot_write(out, error) from error
    finally:
        os.close(itself)  # open until now, so that no new folder could take its number
        shutil.rmtree(hidden, ignore_errors=True)


@contextmanager
def _told_as(hidden: Path, out: Path) -> Iterator[None]:
    """A user knows the folder that was asked for, not the one that is gone by the time the error is read."""
    try:
        yield
    except DataError as error:
        raise DataError(str(error).replace(str(hidden), str(out))) from error


def remove_stale(out: Path, naming: Naming, *, written: Iterable[Path]) -> None:
    """Delete images of an earlier result that the new one does not have.

    A stale interval beside a new tensor would be believed.
    """
    kept = set(written)
    for path in (out / name for name in (*map(naming.image, NAMES), naming.picture, naming.report)):
        if path not in kept:
            path.unlink(missing_ok=True)
            if path.name.endswith(IMAGE):
                sidecar_path(path).unlink(missing_ok=True)


def check_writable(out: Path) -> None:
    """Refuse an output folder that cannot be written to before time is spent."""
    where = _existing_parent(out)
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: cannot be written to, a file of this name is in the way. Choose another folder.")
    if not where.is_dir() or not may_write(where):
        raise DataError(f"{out}: cannot be written to. Choose a folder that you may write to with --out.")


def may_write(folder: Path) -> bool:
    """What the system says; a superuser may everything."""
    return os.access(folder, os.W_OK)


def _write_tensor(result: Reconstruction, path: Path, mask: Path, convention: str, notes: Mapping[str, Any]) -> None:
    origin = Provenance(str(result.notes["Method"]), str(notes["Subject"]), mask, result.volumes)
    details = {
        "BValues": list(result.bvals),
        "AnglesToAxesDegrees": [round(angle, 2) for angle in result.angles_degrees],
        "NotPositiveDefiniteShare": result.spd_touched_share,
        "Warnings": list(result.warnings),
    }
    known = {**result.notes, **notes, **origin.notes_for(path), **details}
    write_tensor(path, result.tensor, space=result.space, convention=convention, notes=known)


def _model(result: Reconstruction) -> dict[str, Any]:
    """As the draft of BIDS for diffusion derivatives describes a model."""
    parameters = {key: result.notes[key] for key in MODEL_PARAMETERS if key in result.notes}
    return {"Description": "diffusion tensor", "Parameters": {"FitMethod": result.notes["Method"], **parameters}}


def _images(
    result: Reconstruction, convention: str
) -> Iterator[tuple[str, tuple[Float[ndarray, "x y z *n"], Mapping[str, Any]]]]:
    """Every image beside tensor and mask, with its sidecar; directions in the convention's own axes."""
    frame = CONVENTIONS[convention].frame
    direction = DIRECTION if frame == "scanner" else {"Units": "1", "Frame": frame}
    values, vectors = result.eigen(frame)
    for name, (_, note) in MAPS.items():
        if name != "v1":
            yield name, (result.map(name), note)
    for index in range(3):
        yield f"v{index + 1}", (np.ascontiguousarray(vectors[..., index]), direction)
        yield f"l{index + 1}", (np.ascontiguousarray(values[..., index]), DIFFUSIVITY)
    yield "s0", (result.s0, SCANNER_UNITS)
    for name, image in result.extra.items():
        yield name, (image, EXTRA[name])


def _existing_parent(out: Path) -> Path:
    """The folder itself or the nearest one above it that exists: on its file system, so that moving is a rename."""
    where = out.absolute()
    while not where.exists():
        where = where.parent
    return where


def _appear(hidden: Path, out: Path) -> None:
    """By one rename, unless the folder is there, perhaps since a moment: another worker may have made it."""
    try:
        if not out.exists():
            hidden.rename(out)
            return
    except OSError as error:
        if error.errno not in _IN_THE_WAY:
            raise
    _move(hidden, out)


def _move(hidden: Path, out: Path) -> None:
    """A subject's new folder by one rename; where it is there already, file by file, the tensor last."""
    for path in sorted(hidden.iterdir(), key=lambda each: (_is_tensor(each), each.name)):
        target = out / path.name
        try:
            path.replace(target)
        except OSError as error:
            if not (path.is_dir() and error.errno in _IN_THE_WAY):
                raise
            _move(path, target)


def _is_tensor(path: Path) -> bool:
    return path.name == "tensor.nii.gz" or "_param-tensor_" in path.name


def _cannot_write(out: Path, error: OSError) -> DataError:
    reason = error.strerror or str(error)
    return DataError(
        f"{out}: cannot be written ({reason}). Free space there, or choose a folder that you may write to."
    )
