"""A virtual cohort on the disk: subjects made one by one, each whole or absent, the finished ones never made again."""

import json
import secrets
import shutil
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tensorldm import __version__, bounded
from tensorldm.cohort.anatomy import AnatomySource
from tensorldm.cohort.files import write_scan, write_truth
from tensorldm.cohort.layout import LAYOUTS, Layout, LayoutName
from tensorldm.cohort.protocol import Protocol
from tensorldm.cohort.refining import refine
from tensorldm.cohort.settings import CohortSettings
from tensorldm.cohort.virtual import make_subject
from tensorldm.errors import ConfigError, DataError
from tensorldm.imaging.atomic import write_json
from tensorldm.rng import derive_seed
from tensorldm.work.crew import Lost
from tensorldm.work.lock import INSIDE
from tensorldm.work.pool import perform_in_pool

ABOUT = "subject.json"
"""Beside each subject's truth: which anatomy it was made from."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides a cohort's files but how many subjects there are."""

    source: AnatomySource
    source_name: str
    split: str
    settings: CohortSettings
    seed: int
    layout_name: LayoutName
    out: Path

    @property
    def layout(self) -> Layout:
        """Where files stand."""
        return LAYOUTS[self.layout_name]

    @property
    def record(self) -> dict[str, Any]:
        """What is kept beside the truth, to make the same cohort again and to refuse a mixture."""
        return {
            "tensorldm": __version__,
            "source": self.source_name,
            "split": self.split,
            "seed": self.seed,
            "layout": self.layout_name,
            "settings": asdict(self.settings),
        }

    def folder(self, index: int) -> Path:
        """A subject's folder, there only when the subject is finished."""
        return self.out / self.layout.label(index)

    def anatomy_name(self, index: int) -> str:
        """Heads are taken in turn, so that few subjects share one."""
        names = self.source.names
        return names[index % len(names)]


def layout_named(name: str) -> LayoutName:
    """The layout of this name."""
    for known in LAYOUTS:
        if name == known:
            return known
    raise ConfigError(f"--layout {name}: there is no such layout. Give one of {', '.join(LAYOUTS)}.")


def write_cohort(plan: Plan, subjects: int, *, workers: int = 1) -> Generator[str, None, None]:
    """Write what is missing of a cohort's first ``subjects`` subjects, giving the label of each when it is there."""
    missing = [index for index in range(subjects) if not plan.folder(index).is_dir()]
    _refuse_mixture(plan)
    write_json(_record_path(plan), plan.record)
    _list_finished(plan, subjects)
    for index in range(subjects):
        if index not in missing:
            yield plan.layout.label(index)
    with closing(_written(plan, missing, workers)) as written:
        for count, index in enumerate(written, start=1):
            _list_finished(plan, subjects)
            yield plan.layout.label(index)
            if count == 1:
                _refuse_if_too_little_room(plan, index, left=len(missing) - count)


def write_subject(plan: Plan, index: int) -> int:
    """Make one subject and put its folders in place, the scan last: its presence means that all is there."""
    layout, label = plan.layout, plan.layout.label(index)
    anatomy = refine(plan.source.load(plan.anatomy_name(index)), plan.settings.detail)
    subject = make_subject(anatomy, plan.settings, seed=plan.seed, position=index, with_bundles=True)
    beside = plan.out / f".{label}.{secrets.token_hex(4)}.part"
    try:
        notes = _notes(subject.scan.protocol) | {
            "Subject": label,
            "Anatomy": anatomy.name,
            "AnatomySource": anatomy.source,
            "Seed": plan.seed,
        }
        inner, prefix = layout.truth_prefix(label)
        write_truth(subject, beside / "truth" / inner, prefix=prefix, notes=notes)
        about = {"anatomy": anatomy.name, "anatomy_source": anatomy.source, "split": plan.split}
        write_json(beside / "truth" / ABOUT, about)
        air_seed = derive_seed(plan.seed, "air", index) if layout.air else None
        write_scan(subject, layout.scan_paths(beside / "scan", label), air_seed=air_seed)
        layout.write_notes(beside / "scan", label, notes=notes)
        _put_in_place(beside / "truth", plan.out / layout.truth / label)
        _put_in_place(beside / "scan", plan.out / label)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return index


def _written(plan: Plan, indices: Sequence[int], workers: int) -> Generator[int, None, None]:
    if workers == 1 or len(indices) < 2:
        for index in indices:
            yield write_subject(plan, index)
        return
    alone = partial(_write_on_one_core, plan)
    with closing(perform_in_pool(alone, indices, workers=min(workers, len(indices)))) as ended:
        for each in ended:
            if isinstance(each, Lost):
                raise DataError(f"{plan.folder(each.job)}: {each.reason}")
            yield each.value


def _write_on_one_core(plan: Plan, index: int) -> int:
    """However many processes there are, each makes the same bytes."""
    torch.set_num_threads(1)
    return write_subject(plan, index)


def _record_path(plan: Plan) -> Path:
    return plan.out / plan.layout.truth / "cohort.json"


def _about_path(plan: Plan, label: str) -> Path:
    return plan.out / plan.layout.truth / label / ABOUT


def _refuse_mixture(plan: Plan) -> None:
    path = _record_path(plan)
    if not path.exists():
        if plan.out.is_dir() and any(path.name != INSIDE for path in plan.out.iterdir()):
            raise DataError(f"{plan.out}: not empty and not a cohort of this layout. Choose another folder with --out.")
        return
    there, wanted = _read_json(path), json.loads(json.dumps(plan.record))
    differing = sorted(key for key in wanted if there.get(key) != wanted[key])
    if differing:
        raise DataError(
            f"{plan.out}: holds a cohort made otherwise (differs in {', '.join(differing)}). "
            "Give the same options to go on with it, or another folder with --out."
        )


def _refuse_if_too_little_room(plan: Plan, index: int, *, left: int) -> None:
    """One finished subject tells what the others will take."""
    folders = (plan.folder(index), plan.out / plan.layout.truth / plan.layout.label(index))
    one = sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
    free = shutil.disk_usage(plan.out).free
    if free < left * one:
        raise DataError(
            f"{plan.out}: {left} more subjects take about {left * one / 1e9:.1f} GB and {free / 1e9:.1f} GB are free. "
            "Free space and give the same command again, or ask for fewer --subjects."
        )


def _list_finished(plan: Plan, subjects: int) -> None:
    finished = [plan.layout.label(index) for index in range(subjects) if plan.folder(index).is_dir()]
    rows = [{"participant_id": label, **_read_json(_about_path(plan, label))} for label in finished]
    plan.layout.write_listing(plan.out, rows)


def _notes(protocol: Protocol) -> dict[str, Any]:
    return {
        "VirtualScan": {
            "SNR": round(protocol.snr, 3),
            "Coils": protocol.coils,
            "BlurFWHM": round(protocol.blur_fwhm, 3),
            "SparseVolumes": list(protocol.sparse),
        }
    }


def _put_in_place(made: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():  # truth of a run that was stopped before its scan was in place
            shutil.rmtree(target)
        made.replace(target)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror}). Choose another folder with --out.") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = bounded.read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). Remove that subject's folder to make it again, or choose another --out."
        ) from error
    return dict(found)
