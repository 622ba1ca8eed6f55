"""Many scans into a store: cheap checks of all, then the work, each subject for itself and only what is missing.

A scan that cannot be used is reported with its sentence and skipped; the rest go on. Work may run in several
processes or on a cluster; each writes its own subjects, and the index is rebuilt from the journal at the end.
"""

import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal

from tensorldm.config.prepare import PrepareConfig
from tensorldm.data.inputs import inputs_hash, source_files
from tensorldm.data.scan import check_scan, prepare_scan
from tensorldm.data.splits import Pin, Source, make_splits, pins_by_person
from tensorldm.data.store import Store, safe_name
from tensorldm.data.subject import Record
from tensorldm.errors import DataError, DataWarning
from tensorldm.imaging.header import SUFFIXES
from tensorldm.imaging.heads import Split
from tensorldm.imaging.layouts import COMMON_NAMES, ScanFiles, find_scans, list_files
from tensorldm.work.bugs import explain
from tensorldm.work.crew import ALONE, Crew, Done, perform

HELD_OUT: Final[tuple[Split, ...]] = ("validation", "test")


@dataclass(frozen=True)
class Job:
    """One scan to prepare, under the name and person it will have in the store."""

    files: ScanFiles
    name: str
    person: str


@dataclass(frozen=True)
class Outcome:
    """What became of one scan."""

    name: str
    state: Literal["prepared", "kept", "failed"]
    problem: str = ""
    """One sentence, if it failed."""
    warnings: tuple[str, ...] = ()
    traceback: str = field(default="", repr=False)
    """Where our own code broke: not the user's to mend."""


def gather(sources: Sequence[Path]) -> list[ScanFiles]:
    """Every scan of folders (HCP trees, BIDS datasets) and of files given one by one."""
    for source in sources:
        if not source.exists() and not source.name.endswith(SUFFIXES):  # a missing image is told as its scan's failure
            raise DataError(f"{source}: there is no such file or folder. Check the path.")
    files = [source for source in sources if not source.is_dir()]
    found = [scan for source in sources if source.is_dir() for scan in find_scans(source)]
    return [*found, *(_named_by_folder(scan) for scan in list_files(files))]


def _named_by_folder(scan: ScanFiles) -> ScanFiles:
    """``anna/dwi.nii.gz`` is ``anna_dwi``, alone or among others: the next call may give another folder's dwi."""
    if scan.name.lower() not in COMMON_NAMES:
        return scan
    name = f"{scan.dwi.resolve().parent.name}_{scan.name}"
    return replace(scan, name=name, person=name)


def pins_of(scans: Iterable[ScanFiles], manifest: Mapping[str, Pin]) -> dict[str, Pin]:
    """Where scans belong before chance decides: by the manifest, else by the virtual cohort that they come from.

    Anatomies that a cohort holds out for validation or test stay held out; those of its train split are shared out.
    """
    held_out = {scan.name: split for scan in scans for split in HELD_OUT if scan.split == split}
    return {name: Pin(split=split) for name, split in held_out.items()} | dict(manifest)


def plan(scans: Sequence[ScanFiles], pins: Mapping[str, Pin]) -> list[Job]:
    """Names made safe and unique, persons as the manifest says; refused as a whole if two scans share a name."""
    jobs: dict[str, Job] = {}
    for scan in scans:
        name = safe_name(scan.name)
        # Case apart is not enough on the file systems of two of the three usual systems.
        earlier = jobs.get(name.casefold())
        if earlier is not None:
            raise DataError(
                f"{scan.dwi}: would be stored as '{name}', as would {earlier.files.dwi}. "
                "Rename one, or prepare them into two stores."
            )
        pin = pins.get(scan.name, pins.get(name, Pin()))
        jobs[name.casefold()] = Job(scan, name, pin.person or scan.person)
    unknown = sorted(set(pins) - {scan.name for scan in scans} - {job.name for job in jobs.values()})
    if unknown:
        raise DataError(
            f"The manifest names '{unknown[0]}', and no scan given has that name. "
            f"The scans are {', '.join(sorted(job.name for job in jobs.values())[:5])}"
            f"{', ...' if len(jobs) > 5 else ''}. Mend the name, or remove the line."
        )
    return sorted(jobs.values(), key=lambda job: job.name)


def check_all(jobs: Sequence[Job], config: PrepareConfig) -> tuple[list[Job], list[Outcome]]:
    """What headers and gradients tell of every scan, before any work: those that are good, and why others are not."""
    checked = [(job, _check(job, config)) for job in jobs]
    return [job for job, failed in checked if failed is None], [failed for _, failed in checked if failed is not None]


def prepare_all(
    jobs: Sequence[Job], store: Store, *, config: PrepareConfig, crew: Crew = ALONE, tell: Callable[[str], None]
) -> Generator[Outcome, None, None]:
    """Prepare scans; gives each outcome as it is known. ``tell`` hears about the crew."""
    # The entries of a large store would travel to the processes with every job, and none of them reads them.
    light = Store(store.folder, store.index.model_copy(update={"entries": ()}))
    with closing(perform(partial(_prepare, store=light, config=config), jobs, crew=crew, tell=tell)) as ended:
        for each in ended:
            if isinstance(each, Done):
                yield each.value
            else:
                yield Outcome(each.job.name, "failed", f"{each.job.files.dwi}: {each.reason}")


def refuse_if_none(outcomes: Sequence[Outcome], count: int) -> None:
    """Where every one of ``count`` scans failed, say so with the first reason."""
    failed = [outcome for outcome in outcomes if outcome.state == "failed"]
    if count and len(failed) == count:
        first = failed[0].problem
        raise DataError(first if count == 1 else f"None of the {count} scans can be prepared. The first: {first}")


def finish(store: Store, pins: Mapping[str, Pin], *, seed: int) -> Store:
    """Split all subjects that are there, nobody moved from where they were, and write the index."""
    sources = [entry.source for entry in store.journal().values()]
    splits = make_splits(sources, seed, pinned=pins_by_person(sources, _said(store, pins)))
    return store.write_index(splits, seed=seed)


def check_pins(jobs: Iterable[Job], store: Store, *, pins: Mapping[str, Pin]) -> None:
    """Refuse a person who would be in two splits before any work is done."""
    known = {entry.name: entry.source for entry in store.index.entries}
    asked = {job.name: Source(job.name, job.person, sha256="") for job in jobs}
    pins_by_person((known | asked).values(), _said(store, pins))


def _said(store: Store, pins: Mapping[str, Pin]) -> list[tuple[str, Split]]:
    """Which split each subject has or shall have, as far as the store and the pins tell."""
    manifest = [(safe_name(name), pin.split) for name, pin in pins.items() if pin.split is not None]
    return [*store.index.splits.items(), *manifest]


def check_seed(store: Store, seed: int) -> None:
    """Refuse to split a store anew: subjects would move between training and test."""
    if store.index.split_seed not in (None, seed):
        raise DataError(
            f"{store.folder}: was split with seed {store.index.split_seed}, now {seed} is asked for. "
            f"Give --split-seed {store.index.split_seed}, or another --out."
        )


def _check(job: Job, config: PrepareConfig) -> Outcome | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # heard again, and recorded, when the work is done
        try:
            check_scan(job.files, config)
        except Exception as error:
            return _failed(job, error)
    return None


def _prepare(job: Job, store: Store, config: PrepareConfig) -> Outcome:
    try:
        known = store.journal_entry(job.name)
        sources = source_files(job.files, known=known.record if known else None)
        inputs = inputs_hash(sources, settings_sha256=store.index.settings_sha256, person=job.person)
        if known and known.record.inputs_sha256 == inputs:
            return Outcome(job.name, "kept", warnings=known.record.warnings)
        if known:
            _require_same_scan(known.record, job)
        store.forget(job.name)  # whatever happens now, what was made of other inputs is out of date
        subject = prepare_scan(job.files, config, name=job.name, person=job.person, sources=sources, inputs=inputs)
        store.add(subject)
    except Exception as error:
        return _failed(job, error)
    return Outcome(job.name, "prepared", warnings=subject.record.warnings)


def _failed(job: Job, error: Exception) -> Outcome:
    """Any exception ends one scan, not a night's run; what is no sentence of ours is a bug, and keeps its traceback."""
    what, traceback = explain(error, where=job.files.dwi)
    return Outcome(job.name, "failed", what, traceback=traceback)


def _require_same_scan(known: Record, job: Job) -> None:
    """A file that changed is prepared anew; another file of the same name must not take its place unnoticed."""
    earlier = next(source.path for source in known.sources if source.role == "dwi")
    if Path(earlier).resolve() != job.files.dwi.resolve():
        raise DataError(
            f"{job.files.dwi}: the store has another scan named '{job.name}', from {earlier}. "
            "Rename one, or prepare into another store."
        )
