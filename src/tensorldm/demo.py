"""The main job on an embedded default: a virtual subject, its four-volume scan, a tensor from it, and how good it is.

Everything goes through files, as with a real scan, so the folder it leaves is an example of each format.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tensorldm.batch import Batch
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.settings import CohortSettings, WarpSettings
from tensorldm.cohort.stream import VirtualStream
from tensorldm.errors import ToolError
from tensorldm.evaluation.evaluate import evaluate_files
from tensorldm.evaluation.table import Row, write_table
from tensorldm.imaging.atomic import write_json
from tensorldm.imaging.gradients import GradientTable, write_fsl
from tensorldm.imaging.map_files import write_maps
from tensorldm.imaging.nifti import write_mask, write_volume
from tensorldm.imaging.tensor_files import DEFAULT_CONVENTION, Provenance, write_tensor
from tensorldm.imaging.volume import Space, Volume
from tensorldm.reconstruct.choice import Choice, choose, pick_device
from tensorldm.reconstruct.files import Request, check_files, run_job
from tensorldm.reconstruct.inputs import Given, InputFiles, gather
from tensorldm.reconstruct.naming import naming_for
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings
from tensorldm.report.compare_fields import read_comparison
from tensorldm.report.compare_page import write_compare_page
from tensorldm.report.figures import draw_overview
from tensorldm.report.subject_page import write_subject_page

RIVAL = "ade"
CALM_POSE = WarpSettings(rotation_degrees=5.0, mirror=False)
"""A patient who lies straight: the picture's three planes then look as one knows them."""
FIELD_OF_VIEW_MM = (192.0, 224.0, 192.0)
SIGNAL_UNITS = 1000.0
"""Brightness of the typical b=0 voxel, as scanners would have it."""


@dataclass(frozen=True)
class DemoResult:
    """What the demo found and where it lies."""

    subject: str
    method: str
    """What reconstructed the scan: the shipped model, or the best closed form where none ships."""
    rows: list[Row]
    scan: Path
    tensor: Path
    table: Path
    picture: Path | None
    page: Path | None
    """Reference and methods side by side."""
    remark: str | None
    """Why there is no picture."""


def run_demo(out: Path, *, seed: int, voxel_size: float, tell: Callable[[str], None]) -> DemoResult:
    """Make a virtual subject, reconstruct its four volumes and measure the result; ``tell`` hears of each step."""
    tell("making a virtual subject and scanning it")
    batch = make_virtual_scan(seed, voxel_size=voxel_size)
    space = centred_space(batch)
    subject = batch.subjects[0]
    head = subject.partition("@")[0]
    dwi, mask = _write_scan(out / "scan", batch, space=space)
    reference = out / "reference" / "tensor.nii.gz"
    truth = _channels_last(batch.components[0].numpy())
    _write_field(reference, truth, space=space, origin=Provenance("ols-90", subject, mask, anatomy=head))

    best = choose()
    name = best.traits.name
    (files,) = gather([dwi], given=Given(mask=mask))
    files = replace(files, name=subject)
    result = _reconstruct(files, best, out / name, tell)
    tensors = [out / method / "tensor.nii.gz" for method in (name, RIVAL)]
    _reconstruct(files, choose(method=RIVAL), out / RIVAL, tell)
    write_maps(reference.parent, truth, space=space, mask=result.mask)

    tell("measuring it against the fit from all 90 directions")
    rows = evaluate_files(reference, tensors)
    table = out / "table.csv"
    write_table(table, rows)
    picture, remark = _try_to_draw(out / "overview.png", result, {"reference": truth, name: result.tensor})
    page = None
    if picture is not None:
        page = out / "compare.html"
        write_compare_page(page, read_comparison(reference, tensors))
    return DemoResult(subject, name, rows, dwi, tensors[0], table, picture, page, remark)


def make_virtual_scan(seed: int, *, voxel_size: float) -> Batch:
    """One head of the test split, scanned with 18 b=0 and 90 directions, of which four volumes are kept."""
    x, y, z = (round(side / voxel_size) for side in FIELD_OF_VIEW_MM)
    source = ProceduralSource(split="test", shape=(x, y, z), voxel_size=(voxel_size,) * 3, bundles=())
    head = source.names[seed % len(source.names)]
    stream = VirtualStream.from_source(source, [head], settings=CohortSettings(warp=CALM_POSE))
    return stream.batch(seed=seed, position=0, size=1)


def centred_space(batch: Batch) -> Space:
    """A RAS grid with the world's origin in its middle."""
    x, y, z = batch.mask.shape[1:]
    size = batch.voxel_size[0].numpy().astype(np.float64)
    affine = np.diag([*size, 1.0])
    affine[:3, 3] = -size * (np.array([x, y, z]) - 1) / 2
    return Space((x, y, z), affine)


def _write_scan(folder: Path, batch: Batch, *, space: Space) -> tuple[Path, Path]:
    """The four volumes as a scanner's converter would leave them; gives the series and the mask."""
    dwi, mask = folder / "dwi.nii.gz", folder / "mask.nii.gz"
    series = _channels_last(batch.dwi[0].numpy()) * SIGNAL_UNITS
    bvals, directions = batch.bvals[0].double().numpy(), batch.directions[0].double().numpy()
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    # From single precision: unit length again to the last digit.
    gradients = GradientTable(bvals, directions / np.where(lengths > 0, lengths, 1))
    write_volume(dwi, Volume(series.astype(np.float32), space))
    write_fsl(folder / "dwi.bval", folder / "dwi.bvec", gradients=gradients, space=space)
    write_json(folder / "dwi.json", {"Manufacturer": "tensorldm (simulated)", "Subject": batch.subjects[0]})
    write_mask(mask, batch.mask[0].numpy(), space=space)
    return dwi, mask


def _reconstruct(files: InputFiles, choice: Choice, out: Path, tell: Callable[[str], None]) -> Reconstruction:
    """Through the door that a user's scan goes through."""
    request = Request(choice, Settings(), pick_device("auto"), out, DEFAULT_CONVENTION, describe=_try_to_describe)
    job = check_files(files, request, naming=naming_for(files, alone=True))
    _, result = run_job(job, choice.load(request.settings, device=request.device), request=request, tell=tell)
    return result


def _try_to_describe(path: Path, result: Reconstruction, notes: Mapping[str, Any]) -> None:
    """The page of one reconstruction; without the drawing library the demo goes on."""
    with suppress(ToolError):
        write_subject_page(path, result, notes)


def _write_field(path: Path, packed: Float[ndarray, "x y z 6"], *, space: Space, origin: Provenance) -> None:
    write_tensor(path, packed, space=space, notes=origin.notes_for(path))


def _try_to_draw(
    path: Path, result: Reconstruction, fields: Mapping[str, Float[ndarray, "x y z 6"]]
) -> tuple[Path | None, str | None]:
    """The overview; without the drawing library the demo goes on."""
    try:
        draw_overview(path, result.s0, tensors=fields, space=result.space, mask=result.mask)
    except ToolError as error:
        return None, str(error)
    return path, None


def _channels_last(volumes: Float[ndarray, "c x y z"]) -> Float[ndarray, "x y z c"]:
    return np.ascontiguousarray(np.moveaxis(volumes, 0, -1))
