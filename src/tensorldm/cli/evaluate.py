"""``tensorldm evaluate``: measure tensor images against a reference."""

import os
from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.crew import Scheduler
from tensorldm.cli.evaluate_cohort import evaluate_cohort, find_cohort
from tensorldm.cli.evaluate_tracts import wish_for_tracts
from tensorldm.cli.main import app

SOME_FAILED = 1


@app.command()
def evaluate(
    reference: Annotated[Path, typer.Argument(help="Reference tensor image (NIfTI), or a folder of many subjects.")],
    predictions: Annotated[
        list[Path], typer.Argument(help="Tensor images to be measured, on the same grid; or folders.")
    ],
    out: Annotated[Path, typer.Option(help="CSV file for the long table.")],
    mask: Annotated[
        Path | None, typer.Option(help="Brain mask; by default the one the reference's sidecar names, or beside it.")
    ] = None,
    convention: Annotated[
        str | None, typer.Option(help="How images without a sidecar are stored: mrtrix, fsl, dipy or nifti.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="The subject's name in the table.")] = None,
    tracts: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Also track, and compare the bundles whose masks are in this folder (of many subjects: in a folder "
            "of each); or 'tractseg', to have TractSeg make them from the reference.",
        ),
    ] = None,
    bundle: Annotated[
        list[str] | None, typer.Option(help="A bundle of that folder; may be repeated. By default the paper's twelve.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Of --tracts: auto, mrtrix or dipy.")] = "auto",
    seeds: Annotated[int, typer.Option(help="Of --tracts: starting points of each tractogram.")] = 180_000,
    seed: Annotated[int, typer.Option(min=0, help="Of --tracts: the same seed gives the same streamlines.")] = 0,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes for a cohort's subjects; threads of --tracts.")
    ] = os.cpu_count() or 1,
    scheduler: Scheduler = None,
) -> None:
    """Measure tensor images against a reference: components, maps, LEM, SPD violations and directions.

    With folders, every subject that they share is measured, by several processes; running again measures only what is
    new. Exit code 1: some could not be measured, each named with its reason.

    With --tracts also the fibres they lead to: tractograms, bundles and pictures go to a folder beside the table,
    figures of bundles into the same table.
    """
    from rich.console import Console

    from tensorldm.errors import ConfigError
    from tensorldm.evaluation.evaluate import evaluate_files
    from tensorldm.evaluation.summary import describe_anatomies, describe_subjects, summarise
    from tensorldm.evaluation.table import write_table
    from tensorldm.evaluation.tracts import TractPlan
    from tensorldm.metrics import ranges
    from tensorldm.tracts.settings import TrackSettings
    from tensorldm.work.crew import Crew

    many, failed, crew = reference.is_dir(), False, Crew(workers if scheduler is None else 1, scheduler)
    if many and (mask, subject) != (None, None):
        raise ConfigError("--mask and --subject belong to one subject. Leave them out for a folder.")
    if not many and scheduler is not None:
        raise ConfigError("--scheduler shares out a cohort: give folders of tensors, or leave it out.")
    found = find_cohort(reference, predictions) if many else None
    plan = TractPlan(TrackSettings(seeds=seeds, seed=seed), engine=engine, names=tuple(bundle or ()), workers=workers)
    cases = None if found is None else found.cases
    wish = None if tracts is None else wish_for_tracts(tracts, plan=plan, table=out, convention=convention, cases=cases)
    if found is not None:
        rows, failed = evaluate_cohort(found, out, convention=convention, crew=crew)
    else:
        rows = evaluate_files(reference, predictions, mask=mask, convention=convention, subject=subject)
        write_table(out, rows)
    console = Console()
    for table in summarise(rows):
        console.print(table.to_rich())
    for line in (*describe_subjects(rows), describe_anatomies(rows), *ranges.describe()):
        console.print(line, style="dim", markup=False)
    if wish is not None:
        if found is not None:
            more, some = wish.of_many(console, found, crew=crew)
            failed |= some
        else:
            more = wish.of_one(console, reference, predictions, mask=mask, subject=subject)
        rows += more
        write_table(out, rows)
    console.print(f"{len(rows)} figures are in {out}", markup=False, soft_wrap=True)
    if failed:
        raise typer.Exit(SOME_FAILED)
