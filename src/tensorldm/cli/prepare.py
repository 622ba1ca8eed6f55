"""``tensorldm prepare``: raw scans to a store of prepared subjects."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorldm import __version__
from tensorldm.cli.crew import Scheduler, Workers, ended_gently, progress_of
from tensorldm.cli.main import app

if TYPE_CHECKING:
    from tensorldm.data.prepare import Outcome
    from tensorldm.data.store import Store
    from tensorldm.imaging.layouts import ScanFiles

SOME_FAILED = 1


@app.command()
def prepare(
    sources: Annotated[
        list[Path], typer.Argument(metavar="SOURCE...", help="HCP trees, BIDS datasets, or 4D NIfTI files.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the store; an existing one is added to.")],
    config: Annotated[str, typer.Option(help="A preset's name or a YAML file.")] = "prepare",
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    manifest: Annotated[
        Path | None, typer.Option(help="Tab-separated name, person, split: pins scans to persons and splits.")
    ] = None,
    workers: Workers = 1,
    scheduler: Scheduler = None,
    split_seed: Annotated[int, typer.Option(help="Seed of the split into train, validation and test.")] = 0,
) -> None:
    """Prepare scans for training: choose volumes, resample, fit the reference tensor, store.

    A brain mask beside a scan is used (NAME_mask, mask, or BIDS desc-brain_mask); else the brain is found.

    Running again does only what is missing. Exit code 0: every scan is in the store; 1: some are not, each named
    with its reason; 2: none is.
    """
    from tensorldm.config.prepare import PrepareConfig
    from tensorldm.config.reading import read_config
    from tensorldm.data import prepare as steps
    from tensorldm.data.splits import read_manifest
    from tensorldm.data.store import Store
    from tensorldm.reconstruct.outputs import check_writable
    from tensorldm.work.crew import Crew
    from tensorldm.work.folder import writing_to

    check_writable(out)
    crew = Crew(workers, scheduler)
    settings = read_config(PrepareConfig, config, overrides or [])
    scans = steps.gather(sources)
    pins = steps.pins_of(scans, read_manifest(manifest) if manifest else {})
    jobs = steps.plan(scans, pins)
    _tell_masks(scans)
    if not manifest and sum(not source.is_dir() for source in sources) > 1:
        typer.echo(
            "note: scans given as files count as of different persons; join those of one person with --manifest.",
            err=True,
        )
    good, outcomes = steps.check_all(jobs, settings)
    _tell_bugs(outcomes)
    steps.refuse_if_none(outcomes, len(jobs))
    with ended_gently(), writing_to(out):
        store = Store.create(out, settings=settings.model_dump(mode="json"), made_by=f"tensorldm {__version__}")
        steps.check_seed(store, split_seed)
        steps.check_pins(jobs, store, pins=pins)
        with progress_of("preparing", len(good)) as bar:
            prepared = steps.prepare_all(good, store, config=settings, crew=crew, tell=bar.say)
            with closing(prepared):
                for outcome in prepared:
                    outcomes.append(outcome)
                    _tell_bugs([outcome])
                    bar.advance(outcome.name)
        if any(outcome.state != "failed" for outcome in outcomes):
            _show(outcomes)
        store = steps.finish(store, pins, seed=split_seed)
    steps.refuse_if_none(outcomes, len(jobs))
    _show_store(store)
    if any(outcome.state == "failed" for outcome in outcomes):
        raise typer.Exit(SOME_FAILED)


def _tell_masks(scans: Sequence["ScanFiles"]) -> None:
    """A mask that was not asked for is used, and that is said; HCP's is part of its layout."""
    from tensorldm.imaging.layouts import HCP_MASK

    beside = [scan.mask for scan in scans if scan.mask is not None and scan.mask.name != HCP_MASK]
    if beside:
        which = str(beside[0]) if len(beside) == 1 else f"{beside[0]} and {len(beside) - 1} more"
        found = "" if len(beside) == len(scans) else "; where there is none, the brain is found in the b=0 images"
        typer.echo(f"note: brain masks beside the scans are used ({which}){found}.", err=True)


def _tell_bugs(outcomes: Sequence["Outcome"]) -> None:
    for outcome in outcomes:
        if outcome.traceback:
            typer.echo(outcome.traceback, err=True)


def _show(outcomes: Sequence["Outcome"]) -> None:
    """A table of what needs a look, and the sums."""
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=False)
    table = Table("scan", "state", "what to know", show_lines=True)
    for outcome in sorted(outcomes, key=lambda each: (each.state != "failed", each.name)):
        for word in (outcome.problem, *outcome.warnings):
            if word:
                table.add_row(outcome.name, outcome.state, word)
    if table.row_count:
        console.print(table, markup=False)
    states = Counter(outcome.state for outcome in outcomes)
    console.print(", ".join(f"{states[s]} {s}" for s in ("prepared", "kept", "failed") if states[s]), markup=False)


def _show_store(store: "Store") -> None:
    """How many there are, how many heads they show, and who trains."""
    from tensorldm.data.splits import join_copies

    splits = Counter(store.index.splits.values())
    shares = ", ".join(f"{splits[split]} {split}" for split in ("train", "validation", "test"))
    heads = len(set(join_copies(entry.source for entry in store.index.entries).values()))
    typer.echo(f"{store.folder}: {len(store.names)} subjects of {heads} persons or independent anatomies ({shares})")
