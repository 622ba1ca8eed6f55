"""From volumes in memory to a reconstruction: working grid, method, mean of the samples, and back.

Axes: n volume that was read, c volume that is used (b=0 first), v voxel of the working mask, k sample.
"""

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tensorldm.data.scaling import scale_dwi
from tensorldm.dti.eigen import eigenvalues
from tensorldm.dti.logarithm import EIGENVALUE_FLOOR_MM2_PER_S, project_spd
from tensorldm.dti.null_space import prior_share
from tensorldm.errors import DataError, heard
from tensorldm.imaging.flips import check_flips
from tensorldm.imaging.grid import Grid
from tensorldm.imaging.mask import find_brain, mean_b0
from tensorldm.imaging.reorient import to_ras
from tensorldm.imaging.volume import Volume
from tensorldm.reconstruct import guard
from tensorldm.reconstruct.consistency import consistency
from tensorldm.reconstruct.engine import Engine, Traits, WorkingScan
from tensorldm.reconstruct.noise import Noise, noise_sigma
from tensorldm.reconstruct.output_grid import WayOut, way_out
from tensorldm.reconstruct.plan import Plan
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings
from tensorldm.reconstruct.uncertainty import Calibration, MeanKind, mean_tensor, measure_spread
from tensorldm.shapes import Image, MaskImage

Tell = Callable[[str], None]


@dataclass
class Stopwatch:
    """Seconds by part, and a word to the user when a part begins."""

    tell: Tell
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        self.tell(name)
        start = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - start)

    def add(self, name: str, seconds: float) -> None:
        """Time that was measured elsewhere; below zero, what a part is not to blame for."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


@dataclass(frozen=True, eq=False)
class Prepared:
    """A scan whose voxels are good, ready for a method, and what the way back will need."""

    series: Volume
    """All volumes that were read: ``plan.read``."""
    used: Volume
    brain: MaskImage
    grid: Grid
    scan: WorkingScan
    words: tuple[str, ...]
    """What the voxels made us say."""


def reconstruct_series(
    series: Volume, plan: Plan, *, mask: MaskImage | None, engine: Engine, settings: Settings, watch: Stopwatch
) -> Reconstruction:
    """Reconstruct a scan whose volumes are those of ``plan.read``; without a mask the brain is found."""
    with heard() as unforeseen:
        prepared = prepare_series(series, plan, mask=mask, settings=settings, watch=watch)
        with watch.part(reconstructing(engine.traits)):
            samples = engine.estimate(prepared.scan)
        result = complete_series(prepared, samples, plan=plan, engine=engine, settings=settings, watch=watch)
    return replace(result, warnings=tuple(dict.fromkeys((*result.warnings, *unforeseen))))


def reconstructing(traits: Traits) -> str:
    """What the method's own part is called."""
    return f"reconstructing with {traits.name}"


def prepare_series(
    series: Volume, plan: Plan, *, mask: MaskImage | None, settings: Settings, watch: Stopwatch
) -> Prepared:
    """Check the voxels and bring the used volumes to the working grid: all that comes before a method."""
    with watch.part("finding and checking the brain"):
        brain = find_brain(mean_b0(series, plan.gradients.select(plan.read))) if mask is None else mask
        used = series.with_data(
            np.ascontiguousarray(series.data[..., [plan.read.index(volume) for volume in plan.used]])
        )
        words = _check_voxels(series, used, plan=plan, brain=brain, force=settings.force)
    with watch.part("moving to the working grid"):
        grid, scan = _to_working_grid(used, plan, mask=brain)
    return Prepared(series, used, brain, grid, scan, tuple(words))


def complete_series(
    prepared: Prepared,
    samples: Float[Tensor, "k v 6"],
    *,
    plan: Plan,
    engine: Engine,
    settings: Settings,
    watch: Stopwatch,
) -> Reconstruction:
    """Mean, spread and the way back to the output grid: all that comes after a method, of which it asks for words."""
    scan = prepared.scan
    mask_words = guard.check_mask(prepared.brain, prepared.used.space, traits=engine.traits)
    words = [*plan.warnings, *mask_words, *prepared.words]
    with watch.part("measuring spread and consistency"):
        packed, touched = _valid(mean_tensor(samples, cast("MeanKind", settings.mean)), settings)
        maps = {
            "prior_share": prior_share(packed, scan.bvals, scan.directions),
            "spd_touched": touched.double(),
            **_spread_maps(samples, scan, engine.calibration),
        }
    with watch.part("moving to the output grid"):
        way = way_out(settings.grid, plan, grid=prepared.grid, scan=scan, used=prepared.used, mask=prepared.brain)
        tensor = way.tensor(packed)
        extra = {name: way.map(values) for name, values in maps.items()}
        extra["spd_touched"] = (extra["spd_touched"] >= 0.5).astype(np.float32)
    with watch.part("measuring spread and consistency"):
        noise = _noise(prepared.series, plan, prepared.brain)
        if isinstance(noise, Noise):
            extra["consistency"] = _consistency(tensor, way, noise.sigma)
        else:
            words.append(noise)
    return Reconstruction(
        tensor=tensor,
        space=way.space,
        mask=way.mask,
        s0=np.where(way.mask, way.s0, 0).astype(np.float32),
        extra=extra,
        volumes=plan.used,
        bvals=tuple(float(b) for b in plan.gradients.bvals[list(plan.used)]),
        angles_degrees=plan.angles_degrees,
        spd_touched_share=float(touched.double().mean()),
        warnings=tuple(words),
        notes={**engine.notes, **_notes(samples, noise, settings)},
        seconds=watch.seconds,
    )


def _check_voxels(series: Volume, used: Volume, *, plan: Plan, brain: MaskImage, force: bool) -> list[str]:
    inside, table = used.data[brain].astype(np.float64), plan.gradients.select(plan.used)
    words = guard.check_signal(inside, table, volumes=plan.used, force=force)
    # After it: of volumes that are mixed up the directions say nothing.
    flips = check_flips(series, plan.gradients.select(plan.read), mask=brain)
    return [*words, *guard.check_flips_word(flips, force=force)]


def _to_working_grid(used: Volume, plan: Plan, *, mask: MaskImage) -> tuple[Grid, WorkingScan]:
    """The used volumes around the brain, on the working grid."""
    whole = plan.grid.forward_mask(mask)
    if not whole.any():
        raise DataError("the brain mask is empty on the 2 mm grid. Give a mask of the whole brain.")
    grid = plan.grid.cropped(whole)
    volumes = [
        grid.forward(used.with_data(np.ascontiguousarray(used.data[..., i]))).data for i in range(used.data.shape[-1])
    ]
    dwi = torch.from_numpy(np.stack(volumes))
    inside = torch.from_numpy(np.ascontiguousarray(grid.forward_mask(mask)))
    table = plan.used_gradients
    return grid, WorkingScan(
        dwi=dwi,
        bvals=torch.from_numpy(table.bvals),
        directions=torch.from_numpy(table.directions),
        mask=inside,
        voxel_size=grid.working.voxel_size,
        b0_scale=scale_dwi(dwi, dwi[0], mask=inside)[1],
        key=_key(used),
    )


def _key(used: Volume) -> str:
    """The scan by its voxels in RAS order: neither its name nor the order in which it is stored changes its noise."""
    return hashlib.sha256(np.ascontiguousarray(to_ras(used.space).forward(used.data)).tobytes()).hexdigest()


def _valid(packed: Float[Tensor, "v 6"], settings: Settings) -> tuple[Float[Tensor, "v 6"], Bool[Tensor, " v"]]:
    """The tensor that is written, and where the method's own was not positive definite."""
    touched = eigenvalues(packed)[:, 2] < EIGENVALUE_FLOOR_MM2_PER_S
    if settings.spd == "raw":
        return packed, touched
    return torch.where(touched[:, None], project_spd(packed), packed), touched


def _spread_maps(
    samples: Float[Tensor, "k v 6"], scan: WorkingScan, calibration: Calibration
) -> dict[str, Float[Tensor, " v"]]:
    """How far the samples differ; nothing from a single one."""
    spread = measure_spread(samples, bvals=scan.bvals, directions=scan.directions, calibration=calibration)
    if spread is None:
        return {}
    return {
        "fa_mean": spread.fa.mean,
        "fa_low": spread.fa.low,
        "fa_high": spread.fa.high,
        "md_low": spread.md.low,
        "md_high": spread.md.high,
        "v1_cone": spread.v1_cone_degrees,
        "prior_sd": spread.prior_sd,
    }


def _noise(series: Volume, plan: Plan, brain: MaskImage) -> Noise | str:
    """The scan's noise as it was stored; or why it cannot be measured."""
    bvals = torch.from_numpy(plan.gradients.select(plan.read).bvals)
    try:
        return noise_sigma(torch.from_numpy(series.data), bvals, mask=torch.from_numpy(np.ascontiguousarray(brain)))
    except DataError as error:
        return f"There is no map of consistency. {error}"


def _consistency(tensor: Float[np.ndarray, "x y z 6"], way: WayOut, sigma: float) -> Image:
    """On the output grid; where it is not the scan's own, interpolation has damped the noise: values come out low."""
    signal = torch.from_numpy(way.signal.data[way.mask].astype(np.float64))
    values = consistency(
        signal,
        torch.from_numpy(tensor[way.mask].astype(np.float64)),
        torch.from_numpy(way.s0[way.mask].astype(np.float64)),
        bvals=torch.from_numpy(way.gradients.bvals),
        directions=torch.from_numpy(way.gradients.directions),
        sigma=sigma,
    )
    image = np.zeros(way.mask.shape, dtype=np.float32)
    image[way.mask] = values.float().numpy()
    return image


def _notes(samples: Float[Tensor, "k v 6"], noise: Noise | str, settings: Settings) -> dict[str, Any]:
    known: dict[str, Any] = {
        "Mean": settings.mean if len(samples) > 1 else "single result",
        "SPD": settings.spd,
        "Grid": settings.grid,
    }
    if isinstance(noise, Noise):
        known |= {"NoiseSigma": noise.sigma, "NoiseEstimator": noise.method}
    return known
