"""The tensors that a table of tracts compares: files on one grid, made from a scan once, or there from elsewhere.

A tensor that was made from the same scan in the same way is there already and is not made again: a trained model
takes minutes on a processor.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from tensorldm import __version__
from tensorldm.baselines.analytic import ANALYTIC
from tensorldm.config.reading import Strict
from tensorldm.errors import ConfigError
from tensorldm.evaluation.evaluate import REFERENCE
from tensorldm.evaluation.tracts import NOISE_FLOOR
from tensorldm.experiments.config import MethodConfig
from tensorldm.experiments.loading import MASK, LoadedSubject, load
from tensorldm.experiments.methods import Workbench, identity, write_method, write_reference
from tensorldm.experiments.subjects import StudySubject, Tell
from tensorldm.reconstruct.choice import default_model
from tensorldm.reconstruct.settings import DEFAULT_SAMPLES, DEFAULT_STEPS
from tensorldm.work.journal import Journal

CLOSED_FORMS: Final = ("ade", "minimum-norm", "ols-6", "ols-12")
SHIPPED: Final = "tensorldm"
"""The method name of the model that the package brings."""
NAME: Final = re.compile(r"\w[\w.-]*")
"""What a model may be called in a table, whose methods have files."""
FIT: Final = "ols"
"""Of the reference, as the paper's."""


@dataclass(frozen=True)
class TractTensors:
    """The tensor images of one subject, and its brain mask on their grid."""

    reference: Path
    mask: Path
    methods: dict[str, Path]
    """By their names in the table, in its order."""


TensorSource = Callable[[Tell], TractTensors]
"""How a subject comes by its tensors; it travels to workers."""


@dataclass(frozen=True)
class Ready:
    """Tensors that are there."""

    tensors: TractTensors

    def __call__(self, _tell: Tell) -> TractTensors:
        """Nothing is to be done."""
        return self.tensors


@dataclass(frozen=True)
class Making:
    """How the tensors of every subject are made from its scan."""

    methods: dict[str, MethodConfig]
    """By their names in the table, in its order."""
    seed: int
    device: torch.device


@dataclass(frozen=True, eq=False)
class FromScan:
    """Tensors that are made from a scan into a folder, where they are missing."""

    subject: StudySubject
    folder: Path
    making: Making

    def __call__(self, tell: Tell) -> TractTensors:
        """Those that are missing take minutes."""
        paths = make_tensors(self.subject, self.making, folder=self.folder, tell=tell)
        return TractTensors(paths.pop(REFERENCE), self.folder / MASK, paths)


class MadeTensor(Strict):
    """A tensor image in a subject's journal."""

    inputs_sha256: str


def name_methods(names: Sequence[str] | None, models: Sequence[str]) -> dict[str, MethodConfig]:
    """Methods by their names in the table: those asked for, or all closed forms and the shipped model; then models.

    A model is given as its folder, whose name it has then, or as ``NAME=FOLDER``.
    """
    shipped = default_model()
    if names is None:
        names = CLOSED_FORMS if shipped is None else (*CLOSED_FORMS, SHIPPED)
    methods: dict[str, MethodConfig] = {}
    for name in names:
        if name == SHIPPED and shipped is None:
            raise ConfigError("--method tensorldm: no model ships with this installation. Give one with --model.")
        if name != SHIPPED and name not in ANALYTIC:
            raise ConfigError(f"--method {name}: there is none. Give {', '.join(ANALYTIC)} or {SHIPPED}.")
        methods[name] = _as_used(shipped) if name == SHIPPED else MethodConfig(analytic=name)
    for model in models:
        name, folder = _named_folder(model)
        if name in {*methods, REFERENCE, NOISE_FLOOR}:
            raise ConfigError(f"--model {model}: '{name}' is in the table already. Name it: --model NAME={folder}.")
        methods[name] = _as_used(folder)
    return methods


def _as_used(folder: Path | None) -> MethodConfig:
    """A model as ``tensorldm reconstruct`` uses it: the mean of a few samples, which is not as rough as one."""
    return MethodConfig(bundle=folder, samples=DEFAULT_SAMPLES, steps=DEFAULT_STEPS)


def _named_folder(model: str) -> tuple[str, Path]:
    """``NAME=FOLDER``, or a folder that is there, whatever is in its name."""
    name, equals, folder = model.partition("=")
    if not equals or Path(model).is_dir():
        return Path(model).resolve().name, Path(model)
    if not NAME.fullmatch(name):
        raise ConfigError(f"--model {model}: '{name}' is to name files. Take letters, digits, '.', '_' and '-'.")
    return name, Path(folder)


def make_tensors(subject: StudySubject, making: Making, *, folder: Path, tell: Tell) -> dict[str, Path]:
    """The tensor images of a subject by method, the reference first; only those that are missing are made."""
    keys = {REFERENCE: _key(subject, FIT, 0)} | {
        label: _key(subject, identity(config), making.seed) for label, config in making.methods.items()
    }
    paths = {label: folder / f"{label}.nii.gz" for label in keys}
    journal = Journal(folder / ".tensors", MadeTensor)
    missing = [label for label, key in keys.items() if not _is_there(journal, label, key, paths[label])]
    if not missing and (folder / MASK).is_file():
        return paths
    tell("reading the scan")
    loaded, bench = load(subject, folder), Workbench(making.device)
    for label in missing:
        tell(label)
        journal.forget(label)
        _make(loaded, making.methods.get(label), paths[label], label=label, seed=making.seed, bench=bench)
        journal.write(label, MadeTensor(inputs_sha256=keys[label]))
    return paths


def _make(
    loaded: LoadedSubject, config: MethodConfig | None, path: Path, *, label: str, seed: int, bench: Workbench
) -> None:
    if config is None:
        write_reference(loaded, FIT, path)
    else:
        write_method(loaded, config, path, label=label, seed=seed, bench=bench)


def _is_there(journal: Journal[MadeTensor], label: str, key: str, path: Path) -> bool:
    known = journal.entry(label)
    return known is not None and known.inputs_sha256 == key and path.is_file()


def _key(subject: StudySubject, method: object, seed: int) -> str:
    """What decides a tensor; the scan by its size and time, for it is large."""
    state = subject.files.dwi.stat()
    value = [__version__, method, seed, subject.name, subject.anatomy, state.st_size, state.st_mtime_ns]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
