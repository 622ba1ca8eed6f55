"""Trained runs of a study on their way to another machine: from where the GPU is to where tables are made.

FOLDER/NAME/recipe.json, rate.json, config.yaml, log.jsonl    what the run was begun with, and how it went
FOLDER/NAME/training.jsonl                                    its lines of the study's own log: minutes, steps, hardware
FOLDER/NAME/stageN/bundle/                                    the weights, in half precision and in pieces
FOLDER/NAME/stageN/carried.json                               the hash of the weights as they were trained

What a run needs only to go on (checkpoints, critics) stays behind: a run is carried when it is trained.
[choice: carried-runs]
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from tensorldm import bounded
from tensorldm.baselines.learned.bundles import read_rival_info, restore, write_rival
from tensorldm.bundle import load_bundle, write_bundle
from tensorldm.bundle_files import INDEX, OURS, WEIGHTS, Precision, read_method
from tensorldm.errors import ConfigError, DataError
from tensorldm.experiments.branching import CARRIED, trained_hash
from tensorldm.experiments.pieces import read_pieces, write_pieces
from tensorldm.experiments.preparing_runs import RATE, RECIPE
from tensorldm.experiments.recipes import RUNS, RunReference, run_folder
from tensorldm.experiments.training_log import NAME as LOG
from tensorldm.experiments.training_log import TrainingLog
from tensorldm.imaging.atomic import write_bytes, write_json
from tensorldm.training.run import bundle_of
from tensorldm.work.folder import writing_to

OF_A_RUN: Final = (RECIPE, RATE, "config.yaml", "log.jsonl")
OF_A_STAGE: Final = ("stage.json", CARRIED)
RUN_NAME, STAGE_NAME = re.compile(r"[\w.-]*\w"), re.compile(r"stage(\d+)")


@dataclass(frozen=True)
class Carried:
    """A stage of a run that was written or taken over."""

    run: str
    stage: int
    mib: float
    """Of its weights."""
    files: int
    """That the weights are cut into."""
    was_there: bool = False

    def __str__(self) -> str:
        size = f"{self.mib:.1f} MiB in {self.files} file{'s' if self.files > 1 else ''}"
        return f"{self.run}, Stage {self.stage}: {'there already' if self.was_there else size}"


def export_runs(
    study: Path, out: Path, *, only: Sequence[str] = (), precision: Precision = "float16", largest: int
) -> list[Carried]:
    """Write trained runs to a folder, weights in files of at most ``largest`` bytes.

    ``only``: ``NAME``, or ``NAME/STAGE`` for an earlier stage; without it the last stage of every trained run.
    """
    wanted = [_reference(text) for text in only] or [
        RunReference(run.name, None) for run in _runs(study / RUNS) if (_bundle(run, None) / INDEX).is_file()
    ]
    if not wanted:
        raise DataError(f"{study / RUNS}: no run is trained there. Train one with 'tensorldm tables train'.")
    bundles = [(each.name, _bundle(run_folder(study, each.name), each.stage)) for each in wanted]
    for name, bundle in bundles:
        if not (bundle / INDEX).is_file():
            raise DataError(f"{bundle}: {name} is not trained to there yet. Train it, or leave it out.")
    return [_export(study, out, name, bundle, precision=precision, largest=largest) for name, bundle in bundles]


def import_runs(folders: Sequence[Path], out: Path) -> list[Carried]:
    """Take exported runs into a study's folder, where they count as trained; what is there already stays."""
    found = [run for folder in folders for run in _exported(folder)]
    for run in found:  # before anything is written
        _refuse_others(run, run_folder(out, run.name))
        for number in _stages(run):
            _weights(bundle_of(run, number))
    taken, log = [], TrainingLog.of(out)
    with writing_to(out / RUNS):
        for run in found:
            for name in OF_A_RUN:
                _copy(run / name, run_folder(out, run.name) / name)
            taken += [_take(run, number, run_folder(out, run.name)) for number in _stages(run)]
            known = log.records(run.name)
            for record in TrainingLog(run / LOG).records(run.name):
                if record not in known:
                    log.add(**record)
    return taken


def _export(study: Path, out: Path, run: str, bundle: Path, *, precision: Precision, largest: int) -> Carried:
    source, folder, stage = run_folder(study, run), out / run, bundle.parent
    place = folder / stage.name / bundle.name
    (place / INDEX).unlink(missing_ok=True)
    content, index = _packed(bundle, precision)
    written = write_pieces(place / WEIGHTS, content, largest=largest)
    for name in OF_A_RUN:
        _copy(source / name, folder / name)
    _copy(stage / "stage.json", folder / stage.name / "stage.json")
    write_json(folder / stage.name / CARRIED, {"weights_sha256": trained_hash(bundle)})
    (folder / LOG).unlink(missing_ok=True)
    for record in TrainingLog.of(study).records(run):
        TrainingLog(folder / LOG).add(**record)
    write_bytes(place / INDEX, index)  # last: a folder with an index is whole
    return Carried(run, _number(stage), len(content) / bounded.MIB, len(written))


def _packed(bundle: Path, precision: Precision) -> tuple[bytes, bytes]:
    """Weights and index of a bundle; in half precision where that is asked for and they are not so yet."""
    if precision == "float32" or _json(bundle / INDEX).get("precision") == "float16":
        return read_pieces(bundle / WEIGHTS), _small(bundle / INDEX)
    with TemporaryDirectory() as scratch:
        _halve(bundle, Path(scratch))
        return read_pieces(Path(scratch) / WEIGHTS), _small(Path(scratch) / INDEX)


def _halve(bundle: Path, out: Path) -> None:
    """The same model with its parameters in half precision, ours or a rival's."""
    if read_method(bundle) == OURS:
        model, ours = load_bundle(bundle)
        _check_fits_half(bundle, model)
        write_bundle(
            out,
            model.state_dict(),
            config=ours.model,
            joint=(ours.decoder_joint, ours.unet_joint),
            card=ours.card,
            precision="float16",
            intervals=ours.intervals,
        )
        return
    info = read_rival_info(bundle)
    rival = restore(bundle, info)
    _check_fits_half(bundle, rival)
    write_rival(
        out,
        rival.state_dict(),
        rival=rival,
        config=info.model,
        card=info.card,
        precision="float16",
        intervals=info.intervals,
    )


def _check_fits_half(bundle: Path, model: torch.nn.Module) -> None:
    largest = torch.finfo(torch.float16).max
    for name, parameter in model.named_parameters():
        if not bool((parameter.detach().abs() <= largest).all()):
            raise DataError(
                f"{bundle}: '{name}' has a weight that half precision cannot hold. Export with --full-precision."
            )


def _weights(bundle: Path) -> bytes:
    """An exported bundle's weights put together, if they are those that were hashed."""
    content = read_pieces(bundle / WEIGHTS)
    if hashlib.sha256(content).hexdigest() != _json(bundle / INDEX).get("weights_sha256"):
        raise DataError(
            f"{bundle / WEIGHTS}: not the weights that {INDEX} was written with (the hash differs). Carry it again."
        )
    return content


def _take(run: Path, number: int, into: Path) -> Carried:
    """A stage's bundle and what is beside it; the index last."""
    source, place = bundle_of(run, number), bundle_of(into, number)
    content, was_there = _weights(source), (place / INDEX).is_file()
    if not was_there:
        for name in OF_A_STAGE:
            _copy(source.parent / name, place.parent / name)
        write_bytes(place / WEIGHTS, content)
        write_bytes(place / INDEX, _small(source / INDEX))
    return Carried(run.name, number, len(content) / bounded.MIB, 1, was_there=was_there)


def _refuse_others(run: Path, there: Path) -> None:
    """A run of this name that is already in the study is the same one, by its recipe and by its weights."""
    if (there / RECIPE).is_file() and _json(there / RECIPE) != _json(run / RECIPE):
        raise ConfigError(
            f"{run}: this run was begun with another recipe than {there / RECIPE}. Import it into another study, or "
            "remove the run's folder there."
        )
    for number in _stages(run):
        old, new = bundle_of(there, number), bundle_of(run, number)
        if (old / INDEX).is_file() and trained_hash(old) != trained_hash(new):
            raise ConfigError(
                f"{old}: other weights than those of {run} are there. Import into another study, or remove the run's "
                "folder there."
            )


def _exported(folder: Path) -> list[Path]:
    found = [run for run in _runs(folder) if _stages(run)]
    if not found:
        raise DataError(f"{folder}: no exported run is there. Give a folder that 'tensorldm tables export' wrote.")
    return found


def _runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob(f"*/{RECIPE}") if RUN_NAME.fullmatch(path.parent.name))


def _stages(run: Path) -> list[int]:
    found = [path.parent.parent for path in run.glob(f"stage*/bundle/{INDEX}")]
    return sorted(_number(stage) for stage in found if STAGE_NAME.fullmatch(stage.name))


def _number(stage: Path) -> int:
    return int(stage.name.removeprefix("stage"))


def _bundle(run: Path, stage: int | None) -> Path:
    """Of a stage, by default of the last that the run's recipe has."""
    if stage is None:
        if not (run / RECIPE).is_file():
            raise DataError(f"{run}: no such run. 'tensorldm tables train' makes it.")
        stage = int(_json(run / RECIPE)["stages"][-1])
    return bundle_of(run, stage)


def _reference(text: str) -> RunReference:
    try:
        return RunReference.read(text)
    except ValueError as error:
        raise ConfigError(f"--only {error}. Give NAME or NAME/STAGE.") from error


def _copy(source: Path, to: Path) -> None:
    if source.is_file():
        write_bytes(to, _small(source))


def _small(path: Path) -> bytes:
    try:
        return bounded.read_bytes(path, limit=bounded.LARGEST_INDEX_BYTES)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Carry it again.") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(_small(path)))
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: not valid JSON ({error}). Carry it again.") from error
