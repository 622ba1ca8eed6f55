"""Every line of a table as files: the reference, closed forms, trained models, and autoencoders shown the reference.

A tensor is written with a sidecar and measured from its file, as anybody's would be. Models are loaded once and serve
all subjects; what they draw is keyed by the scan and the seed.
"""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from tensorldm.baselines.analytic import analytic_method
from tensorldm.baselines.learned.choice import choose
from tensorldm.baselines.learned.engine import RivalEngine
from tensorldm.baselines.scan import Scan
from tensorldm.bundle import INDEX
from tensorldm.config.prepare import Fit
from tensorldm.data.reference import reference_tensor
from tensorldm.dti.intensity import robust_b0_scale
from tensorldm.errors import DataError, about
from tensorldm.experiments.config import MethodConfig
from tensorldm.experiments.loading import MASK, LoadedSubject
from tensorldm.imaging.grid import working_grid
from tensorldm.imaging.tensor_files import Provenance, write_tensor
from tensorldm.imaging.volume import Volume
from tensorldm.reconstruct.engine import Engine
from tensorldm.reconstruct.model_engine import ModelEngine
from tensorldm.reconstruct.pipeline import Stopwatch, reconstruct_series
from tensorldm.reconstruct.plan import make_plan
from tensorldm.reconstruct.result import Reconstruction
from tensorldm.reconstruct.settings import Settings

Field6 = Float[ndarray, "x y z 6"]


@dataclass(eq=False)
class Workbench:
    """Loaded models by folder, on one device."""

    device: torch.device
    engines: dict[Path, tuple[Settings, Engine]] = field(default_factory=dict)

    def engine(self, bundle: Path, settings: Settings) -> Engine:
        """The bundle's engine with these settings; weights are read once for all of them."""
        loaded = self.engines.get(bundle)
        if loaded is not None and loaded[0] == settings:
            return loaded[1]
        if loaded is not None and isinstance(loaded[1], ModelEngine | RivalEngine):
            engine: Engine = replace(loaded[1], settings=settings)
        else:
            engine = choose(model=bundle).load(settings, device=self.device)
        self.engines[bundle] = settings, engine
        return engine

    def reconstruct(
        self, loaded: LoadedSubject, bundle: Path, *, settings: Settings, scan: Scan | None = None
    ) -> Reconstruction:
        """A trained model's whole way, as ``tensorldm reconstruct`` goes it; on ``scan``, a part of the series."""
        scan = loaded.scan if scan is None else scan
        with about(loaded.files.dwi):
            plan = make_plan(scan.space, scan.gradients, traits=choose(model=bundle).traits, settings=settings)
            series = Volume(np.ascontiguousarray(scan.signal[..., list(plan.read)]), scan.space)
            engine, watch = self.engine(bundle, settings), Stopwatch(lambda _: None)
            return reconstruct_series(series, plan, mask=scan.mask, engine=engine, settings=settings, watch=watch)


def method_settings(config: MethodConfig, loaded: LoadedSubject, *, seed: int) -> Settings:
    """How a model is used: on the paper's four volumes, unprojected wherever no interpolation stands in between."""
    resampled = len(working_grid(loaded.scan.space).steps) > 1
    spd = "project" if resampled else "raw"
    # A model that always gives the same tensor has no samples to average, whatever the study asks of those that draw.
    draws = config.bundle is not None and choose(model=config.bundle).traits.samples
    samples = config.samples if draws else None
    directions = "3" if config.sees is None else "all"
    return Settings(
        spd=spd, directions=directions, samples=samples, steps=config.steps, sampler=config.sampler, seed=seed
    )


def write_reference(loaded: LoadedSubject, fit: Fit, path: Path) -> None:
    """The tensor that everything is measured against: a fit to every b=0 and direction of the shell."""
    scan = loaded.scan
    signal, bvals, directions = scan.inside(loaded.whole_shell)
    b0 = torch.from_numpy(scan.signal[..., list(scan.gradients.b0_indices)].mean(axis=-1))
    scale = robust_b0_scale(b0, torch.from_numpy(scan.mask)).item()
    packed = reference_tensor(signal, bvals, directions=directions, fit=fit, b0_scale=scale, grad_dev=loaded.grad_dev)
    write_estimate(loaded, scan.scatter(packed.float()), path, method=fit, volumes=loaded.whole_shell)


def write_method(
    loaded: LoadedSubject, config: MethodConfig, path: Path, *, label: str, seed: int, bench: Workbench
) -> None:
    """The tensor of a closed form or a trained model."""
    if config.analytic is not None:
        estimate = analytic_method(config.analytic).reconstruct(loaded.scan)
        write_estimate(loaded, estimate.packed, path, method=label, volumes=estimate.volumes)
        return
    assert config.bundle is not None, "autoencoders are another matter"
    settings, scan = method_settings(config, loaded, seed=seed), loaded.scan
    seen = tuple(range(len(scan.gradients)))
    if config.sees is not None:
        seen = analytic_method(config.sees).choose(scan.gradients)
        scan = replace(scan, signal=scan.signal[..., list(seen)], gradients=scan.gradients.select(seen))
    result = bench.reconstruct(loaded, config.bundle, settings=settings, scan=scan)
    volumes = tuple(seen[volume] for volume in result.volumes)
    write_estimate(loaded, result.tensor, path, method=label, volumes=volumes)


def write_estimate(loaded: LoadedSubject, packed: Field6, path: Path, *, method: str, volumes: tuple[int, ...]) -> None:
    """A tensor of the subject's grid, with a sidecar that names method, subject, mask and whose head it is."""
    subject = loaded.subject
    origin = Provenance(method, subject.name, path.with_name(MASK), volumes, anatomy=subject.anatomy or None)
    write_tensor(path, packed, space=loaded.scan.space, notes=origin.notes_for(path))


def identity(config: MethodConfig) -> dict[str, Any]:
    """What decides a method's figures beside the scan and the seed: its settings, and a model's weights."""
    left_out = {"note", "paper", "ranked", "subjects", "bundle", "autoencoder"}
    # Without it a method is known as it was before there was a choice, so that what was measured still counts.
    known = config.model_dump(mode="json", exclude=left_out | ({"sees"} if config.sees is None else set()))
    kind = "bundle" if config.bundle is not None else "autoencoder"
    folder = config.bundle or config.autoencoder
    return known if folder is None else {**known, kind: _index_hash(folder)}


def _index_hash(folder: Path) -> str:
    """A bundle's index holds the hash of its weights."""
    try:
        return hashlib.sha256((folder / INDEX).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(
            f"{folder / INDEX}: no model there ({error.strerror}). Train it first, or take its method out of the study."
        ) from error
