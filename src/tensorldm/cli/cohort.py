"""``tensorldm cohort``: virtual subjects as files, as a scanner would give them, with the truth beside."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from tensorldm.cli.main import app


@app.command()
def cohort(
    out: Annotated[Path, typer.Option(help="Folder of the cohort; an unfinished one is gone on with.")],
    subjects: Annotated[int, typer.Option(min=1, help="How many subjects the folder shall hold.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other subjects; the same seed, the same bytes.")] = 0,
    layout: Annotated[
        str, typer.Option(help="bids (raw scans) or hcp (HCP Young Adult tree, background masked).")
    ] = "bids",
    source: Annotated[str, typer.Option(help="procedural, templates:FOLDER, or several joined by +.")] = "procedural",
    split: Annotated[str, typer.Option(help="Anatomies of train, validation or test.")] = "train",
    config: Annotated[str, typer.Option(help="A preset's name or a YAML file.")] = "cohort",
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes; each needs about 3 GB at the full protocol.")] = 1,
) -> None:
    """Write virtual subjects: diffusion series with gradients, and the noise-free tensor, tissue and bundles as truth.

    Running the same command again does only what is missing.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from tensorldm.cli.crew import ended_gently
    from tensorldm.cohort.config import read_cohort
    from tensorldm.cohort.sources import open_source
    from tensorldm.cohort.writing import Plan, layout_named, write_cohort
    from tensorldm.imaging.heads import read_heads
    from tensorldm.reconstruct.outputs import check_writable
    from tensorldm.work.folder import writing_to

    check_writable(out)
    settings = read_cohort(config, overrides or [])
    plan = Plan(
        source=open_source(source, split, settings=settings, subjects=subjects),
        source_name=source,
        split=split,
        settings=settings.settings,
        seed=seed,
        layout_name=layout_named(layout),
        out=out,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ended_gently(), writing_to(out), Progress(*columns, transient=True) as progress:
        task = progress.add_task("virtual subjects", total=subjects)
        with closing(write_cohort(plan, subjects, workers=workers)) as written:
            for label in written:
                progress.update(task, advance=1, description=label)
    anatomies = len({head.anatomy for head in read_heads(out).values()})
    typer.echo(
        f"{subjects} subjects of {anatomies} independent anatomies ({split}) are in {out}; "
        f"truth in {out / plan.layout.truth}. Reconstruct them: tensorldm reconstruct {out} -o results"
    )
