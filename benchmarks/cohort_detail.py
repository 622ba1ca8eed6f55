"""How much fluid, contrast and fine detail virtual subjects have, beside real fits of scans that may be trained on.

    python benchmarks/cohort_detail.py --real REAL --anatomies FOLDER [--subjects 6] [--preset cohort clinical]

For every real scan virtual subjects of other persons are scanned with its own voxels, b-value, number of directions
and noise, and both are fitted on the 2 mm grid. `fine` is the standard deviation, in the brain two voxels below the
mask's edge, of what a Gaussian of 6 mm takes away; the noise in it is alike because the SNR is.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage

from tensorldm.cohort.clinical import ArtefactSettings
from tensorldm.cohort.config import read_cohort
from tensorldm.cohort.manifest import person_behind
from tensorldm.cohort.procedural import ProceduralSource
from tensorldm.cohort.stream import VirtualStream
from tensorldm.cohort.templates import TemplateSource
from tensorldm.dti.fit import fit_ols
from tensorldm.dti.maps import fractional_anisotropy, mean_diffusivity
from tensorldm.dti.signal import predict_signal
from tensorldm.imaging.gradients import read_gradients
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.mask import find_brain, mean_b0
from tensorldm.imaging.nifti import read_volume

SCANS = ("uih_PA", "toshiba_ortho", "philips_vanderbilt_b2000")
FINE_FWHM_VOXELS = 3.0
COLUMNS = ("scan", "subjects", "csf %", "MD q5/50/95", "FA q50/90/99", "fine MD", "fine FA", "fine off-diagonal")


@dataclass(frozen=True)
class Look:
    """What is measured of one fit."""

    csf: float
    md: np.ndarray
    fa: np.ndarray
    fine: np.ndarray


@dataclass(frozen=True)
class RealScan:
    name: str
    look: Look
    voxel_mm: tuple[float, float, float]
    b0s: int
    directions: int
    bval: float
    snr: float


def look(components: torch.Tensor, mask: torch.Tensor) -> Look:
    packed = components[:, mask].T
    md, fa = 1e3 * mean_diffusivity(packed), fractional_anisotropy(packed)
    inner = ndimage.binary_erosion(mask.numpy(), iterations=2)
    maps = torch.stack([1e3 * mean_diffusivity(components.movedim(0, -1)), *(1e3 * components[3:])])
    whole_fa = torch.zeros(mask.shape)
    whole_fa[mask] = fa
    sigma = FINE_FWHM_VOXELS / 2.355
    cover = np.maximum(ndimage.gaussian_filter(mask.numpy().astype(np.float32), sigma), 1e-3)
    fine = []
    for volume in (maps[0], whole_fa, *maps[1:]):
        smooth = ndimage.gaussian_filter((volume * mask).numpy(), sigma) / cover
        fine.append(float((volume.numpy() - smooth)[inner].std()))
    return Look(
        csf=float((md > 1.8).float().mean()) * 100,
        md=np.percentile(md.numpy(), [5, 50, 95]),
        fa=np.percentile(fa.numpy(), [50, 90, 99]),
        fine=np.array([fine[0], fine[1], np.mean(fine[2:])]),
    )


def read_real(folder: Path) -> RealScan:
    series, gradients = read_volume(folder / "dwi.nii.gz"), read_gradients(folder / "dwi.nii.gz")
    native = find_brain(mean_b0(series, gradients))
    table = (torch.from_numpy(gradients.bvals.copy()).float(), torch.from_numpy(gradients.directions.copy()).float())
    signal = torch.from_numpy(np.asarray(series.data[native])).float()
    packed, s0 = fit_ols(signal, *table)
    residual = (signal - predict_signal(packed, s0, *table)).square().sum(dim=1) / (signal.shape[1] - 7)
    white = (fractional_anisotropy(packed) > 0.35) & (mean_diffusivity(packed) < 1.2e-3)
    snr = float(s0[white].median() / residual[white].median().sqrt())
    grid = working_grid(series.space)
    mask = torch.from_numpy(grid.forward_mask(native))
    moved, turned = grid.forward(series), grid.forward_gradients(gradients)
    fitted, _ = fit_ols(
        torch.from_numpy(moved.data)[mask],
        torch.from_numpy(turned.bvals.copy()).float(),
        torch.from_numpy(turned.directions.copy()).float(),
    )
    components = torch.zeros(6, *mask.shape)
    components[:, mask] = fitted.T
    b0s = int((gradients.bvals < 50).sum())
    return RealScan(
        name=folder.name,
        look=look(components, mask),
        voxel_mm=tuple(float(side) for side in series.space.voxel_size),
        b0s=b0s,
        directions=len(gradients.bvals) - b0s,
        bval=float(gradients.bvals.max()),
        snr=snr,
    )


def virtual(real: RealScan, preset: str, anatomies: list, subjects: int) -> list[Look]:
    """Subjects of other persons, scanned as the real one was."""
    settings = read_cohort(preset).settings
    coarse = any(abs(side - 2) > 0.05 for side in real.voxel_mm)
    protocol = replace(
        settings.protocol,
        scheme=None,
        b0s=(real.b0s, real.b0s),
        directions=(real.directions, real.directions),
        bval=(real.bval, real.bval),
        snr=(real.snr, real.snr),
        voxel_mm=real.voxel_mm if coarse else None,
    )
    kept = replace(settings.artefacts, coarse=0.0, slab=0.0, eroded=1.0, generous=0.0)
    settings = replace(settings, protocol=protocol, artefacts=kept if preset != "cohort" else ArtefactSettings())
    person = person_behind(real.name)
    stream = VirtualStream([head for head in anatomies if head.source != person], settings)
    batches = [stream.batch(seed=1, position=position, size=1) for position in range(subjects)]
    return [look(batch.components[0], batch.mask[0]) for batch in batches]


def line(name: str, count: int, looks: list[Look]) -> str:
    def middle(values: list) -> np.ndarray:
        return np.median(np.array(values), axis=0)

    md, fa, fine = (middle([getattr(each, part) for each in looks]) for part in ("md", "fa", "fine"))
    cells = [
        name,
        str(count),
        f"{middle([each.csf for each in looks]):.1f}",
        "/".join(f"{value:.2f}" for value in md),
        "/".join(f"{value:.2f}" for value in fa),
        *(f"{value:.3f}" for value in fine),
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True, help="folder of the real scans' folders")
    parser.add_argument("--anatomies", type=Path, required=True, help="folder of packed anatomies or templates")
    parser.add_argument("--subjects", type=int, default=6)
    parser.add_argument("--scans", nargs="+", default=list(SCANS))
    parser.add_argument("--preset", nargs="+", default=["cohort", "clinical"])
    arguments = parser.parse_args()
    source, drawn = (
        TemplateSource(arguments.anatomies, split="train", bundles=()),
        ProceduralSource(count=1, bundles=()),
    )
    anatomies = [source.load(name) for name in source.names] + [drawn.load(name) for name in drawn.names]
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for name in arguments.scans:
        real = read_real(arguments.real / name)
        print(line(f"real: {name} (SNR {real.snr:.0f})", 1, [real.look]), flush=True)
        for preset in arguments.preset:
            print(
                line(f"as {name}: {preset}", arguments.subjects, virtual(real, preset, anatomies, arguments.subjects)),
                flush=True,
            )


if __name__ == "__main__":
    main()
