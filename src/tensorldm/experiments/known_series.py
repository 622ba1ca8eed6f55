"""Real series whose whole fit stands for the truth: the sparse input is chosen from the same volumes.

The fit has noise of its own and shares that of the input's volumes, so coverage of it tells less than that of a virtual
subject's clean tensor; factors are never fitted on it.
"""

import hashlib
from pathlib import Path
from typing import Final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tensorldm.cohort.anatomy import TISSUES
from tensorldm.cohort.manifest import person_behind
from tensorldm.config.prepare import PrepareConfig
from tensorldm.config.reading import read_config
from tensorldm.data.scan import check_scan, prepare_scan
from tensorldm.data.selection import PAPER_SHELL
from tensorldm.data.subject import Subject
from tensorldm.dti.maps import fractional_anisotropy, mean_diffusivity
from tensorldm.errors import ToolError, about
from tensorldm.experiments.known_scans import FIT, NO_TISSUE, KnownScan
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.layouts import ScanFiles, list_files
from tensorldm.metrics.ranges import V1_MIN_FA
from tensorldm.reconstruct.engine import WorkingScan

MARGIN_MM: Final = 4.0
"""Background kept around the brain, as in a reconstruction."""
FLUID_MD_MM2_PER_S: Final = 2.0e-3
TISSUE_MD_MM2_PER_S: Final = 1.1e-3
GREY_FA: Final = 0.2
"""Without a tissue map the fit itself tells: fluid above the first MD; below the second, white matter where the
direction is clear and grey matter up to this FA. Voxels between them belong to none."""


def check_known_series(path: Path) -> None:
    """Refuse what headers and gradients tell, in milliseconds."""
    files, config = _files_and_settings(path)
    check_scan(files, config)
    if files.mask is None:
        try:
            import dipy  # noqa: F401  looked for, not used
        except ImportError as error:
            raise ToolError(
                f"{path}: no mask stands beside it, and finding the brain needs DIPY, which is not installed here. "
                "Put a mask there."
            ) from error


def read_known_series(path: Path, name: str) -> KnownScan:
    """One b=0 and the three directions nearest to the axes, and the fit of every volume, on the 2 mm grid."""
    files, config = _files_and_settings(path)
    subject = prepare_scan(files, config, name=name, person=name, sources=(), inputs="")
    fit = subject.components[:, subject.mask].T.double()
    return KnownScan(
        name=name,
        anatomy=person_behind(name) or name,
        scan=_working_scan(subject),
        truths={FIT: fit},
        tissue=tissues_of(fit),
    )


def tissues_of(packed: Float[Tensor, "v 6"]) -> Int[np.ndarray, " v"]:
    """What each voxel most likely is, from its tensor alone."""
    fa, md = fractional_anisotropy(packed), mean_diffusivity(packed)
    solid: Bool[Tensor, " v"] = md < TISSUE_MD_MM2_PER_S
    label = torch.full(fa.shape, NO_TISSUE, dtype=torch.int8)
    for name, where in (
        ("csf", md > FLUID_MD_MM2_PER_S),
        ("grey", solid & (fa < GREY_FA)),
        ("white", solid & (fa > V1_MIN_FA)),
    ):
        label[where] = TISSUES.index(name)
    return label.numpy()


def _files_and_settings(path: Path) -> tuple[ScanFiles, PrepareConfig]:
    """The shell nearest to the paper's is used, whatever its b-value: the model is told."""
    (files,) = list_files([path])
    gradients = read_gradients(path, bval=files.bval, bvec=files.bvec)
    with about(path):
        shell = gradients.nearest_shell(PAPER_SHELL).bval
    return files, read_config(PrepareConfig, "prepare", [f"shell={shell}", f"margin_mm={MARGIN_MM}"])


def _working_scan(subject: Subject) -> WorkingScan:
    return WorkingScan(
        dwi=subject.dwi,
        bvals=subject.bvals.double(),
        directions=subject.directions.double(),
        mask=subject.mask,
        voxel_size=subject.voxel_size,
        b0_scale=1.0,  # the volumes are scaled already
        key=hashlib.sha256(subject.dwi.numpy().tobytes()).hexdigest(),
    )
