"""``tensorldm calibrate``: intervals that hold the truth as often as they say, and a table that shows it."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tensorldm.cli.main import app


@app.command()
def calibrate(
    bundle: Annotated[Path, Argument(help="Folder of a trained TensorLDM bundle.")],
    data: Annotated[str, Option(help="Virtual subjects: cohort:SOURCE (procedural, templates:FOLDER, joined by +).")],
    out: Annotated[Path, Option(help="Folder of the new bundle, with its tables of coverage.")],
    subjects: Annotated[int, Option(min=1, help="Virtual subjects of each split.")] = 16,
    samples: Annotated[int | None, Option(min=1, help="Samples a subject; by default as reconstruct.")] = None,
    steps: Annotated[int | None, Option(min=1, help="Steps of the sampler; by default as reconstruct.")] = None,
    sampler: Annotated[str | None, Option(help="dpm++2m or ddim; by default as reconstruct.")] = None,
    factors: Annotated[
        str, Option(help="one for each quantity, by-tissue for FA and MD, or auto: the latter where it is needed.")
    ] = "auto",
    cohort: Annotated[str, Option(help="How virtual subjects vary: a preset or a YAML file.")] = "clinical",
    overrides: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a setting of the cohort.")
    ] = None,
    scan: Annotated[
        list[Path] | None,
        Option(help="A real series to measure coverage on, against the fit of all its directions; may be repeated."),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Of the subjects and of the samples.")] = 0,
    device: Annotated[str, Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Fit the factors on a bundle's intervals and measure how often they hold the truth.

    Factors are fitted on validation anatomies, for the noise-free tensor; coverage is measured on test anatomies.
    Stopped, the same command goes on.
    """
    from typing import get_args

    from rich.console import Console
    from rich.table import Table

    from tensorldm.cli.crew import ended_gently, progress_of
    from tensorldm.cohort.config import read_cohort
    from tensorldm.errors import ConfigError
    from tensorldm.experiments.calibrating import Factors, Task, calibrate, check_task
    from tensorldm.experiments.coverage_text import describe_factors, short_table, verdict
    from tensorldm.experiments.record import own_arguments, record_run
    from tensorldm.reconstruct.choice import pick_device
    from tensorldm.reconstruct.settings import Settings

    if factors not in get_args(Factors):
        raise ConfigError(f"--factors is '{factors}'; give one of {', '.join(get_args(Factors))}.")
    task = Task(
        bundle=bundle,
        data=data,
        cohort=read_cohort(cohort, overrides or []),
        subjects=subjects,
        settings=Settings(
            samples=samples, steps=steps or Settings.steps, sampler=sampler or Settings.sampler, seed=seed
        ),
        device=pick_device(device),
        out=out,
        factors=factors,  # type: ignore[arg-type]  # one of them, as was just checked
        scans=tuple(scan or ()),
    )
    splits = check_task(task)
    record = record_run(own_arguments(), seed=seed)
    with ended_gently(), progress_of("loading the model", 2 * subjects + len(task.scans)) as bar:

        def tell(name: str) -> None:
            bar.advance(name)
            if not bar.console.is_terminal:
                bar.say(name)

        outcome = calibrate(task, splits, record=record, tell=tell)
    console = Console()
    headings, *lines = short_table(outcome.rows)
    shown = Table(*headings, box=None)
    for cells in lines:
        shown.add_row(*cells)
    console.print(shown)
    for line in (*describe_factors(outcome.calibration), verdict(outcome.rows)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"The calibrated model and coverage.md are in {out}", markup=False, soft_wrap=True)
