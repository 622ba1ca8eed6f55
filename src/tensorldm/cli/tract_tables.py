"""``tensorldm tables tracts``: methods compared by the bundles that their tensors lead to."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tensorldm.cli.tables import tables

if TYPE_CHECKING:
    from tensorldm.experiments.tract_subjects import Chosen, Wanted
    from tensorldm.experiments.tract_tensors import Making

SOME_FAILED = 1
DEFAULT_VIRTUAL = 2
Tell = Callable[[str], None]
Choose = Callable[[Tell], "Chosen"]
"""Gives the subjects, made where they are missing."""


@tables.command()
def tracts(
    out: Annotated[Path, typer.Option(help="Folder for tensors, tractograms and tables; an unfinished one goes on.")],
    cohorts: Annotated[
        list[Path] | None, typer.Argument(help="Folders that 'tensorldm cohort' wrote; without them some are made.")
    ] = None,
    virtual: Annotated[
        int | None, typer.Option(min=0, help=f"Make so many virtual test subjects; without cohorts {DEFAULT_VIRTUAL}.")
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(help="Folder of template anatomies: make a subject from its test anatomy too.")
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(help="Folder that 'tensorldm tables run' wrote: measure the tensors that it has kept, make none."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the subjects made.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="ade, minimum-norm, ols-6, ols-12 or tensorldm (the shipped model), or one of --study; by default all."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FOLDER",
            help="Of a further trained model, ours or a rival's, and what to call it: by default its folder's name.",
        ),
    ] = None,
    bundle: Annotated[list[str] | None, typer.Option(help="Bundles to look at; by default the paper's twelve.")] = None,
    subjects: Annotated[int | None, typer.Option(min=1, help="Only the first so many of each cohort or group.")] = None,
    engine: Annotated[str, typer.Option(help="auto, mrtrix or dipy.")] = "auto",
    seeds: Annotated[int, typer.Option(help="Starting points of each tractogram.")] = 180_000,
    seed: Annotated[int, typer.Option(min=0, help="Of subjects made, streamlines and models that draw.")] = 0,
    device: Annotated[str, typer.Option(help="Of trained models: auto, cpu, cuda or mps.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Subjects at once; a single one uses them all.")] = os.cpu_count()
    or 1,
    results: Annotated[Path | None, typer.Option(help="Markdown document whose section 'tracts' is replaced.")] = None,
) -> None:
    """Track every method on virtual subjects and measure how far their bundles are from the reference's.

    Subjects and tensors are made, or, with --study, those that a study has kept are measured.
    Three minutes a method and subject on one core. The same command again goes on with what is missing. Exit code 1:
    some subjects failed, each named with its reason.
    """
    from rich.console import Console

    from tensorldm.cli.crew import ended_gently
    from tensorldm.cli.tract_drawing import draw_means, draw_quietly, show_tracts
    from tensorldm.errors import ConfigError, DataError
    from tensorldm.evaluation.markdown import replace_section
    from tensorldm.evaluation.tracts import TractPlan
    from tensorldm.experiments.record import own_arguments, record_run
    from tensorldm.experiments.tract_subjects import Wanted
    from tensorldm.experiments.tracts import TractTask, compare_tracts, write_results
    from tensorldm.tracts.engine import open_engine
    from tensorldm.tracts.settings import TrackSettings
    from tensorldm.work.crew import Crew
    from tensorldm.work.folder import writing_to

    open_engine(engine)  # what is wrong is told before anything is made
    if study is None:
        count = DEFAULT_VIRTUAL if virtual is None and not cohorts else virtual or 0
        if not (count or cohorts or templates):
            raise ConfigError("--virtual 0: nobody is left to measure. Give cohorts, --templates or a larger number.")
        wanted = Wanted(count, templates, tuple(overrides or ()), seed)
        making = _making(method, model or [], seed=seed, device=device)
        choose = _from_scans(cohorts or [], wanted, making, out=out, most=subjects, workers=workers)
    else:
        _refuse_beside(
            study,
            {"cohorts": cohorts, "--virtual": virtual, "--templates": templates, "--model": model, "--set": overrides},
        )
        choose = _from_study(study, method or [], out=out, most=subjects)
    plan = TractPlan(TrackSettings(seeds=seeds, seed=seed), engine=engine, names=tuple(bundle or ()), workers=workers)
    console, task = Console(), TractTask(plan, draw_quietly)
    with ended_gently(), writing_to(out), console.status("starting") as status:
        chosen = choose(status.update)
        outcomes = compare_tracts(chosen.subjects, task, crew=Crew(workers), tell=status.update)
        problems = [outcome.problem for outcome in outcomes if outcome.problem]
        rows = [row for outcome in outcomes for row in outcome.rows]
        if not rows:
            raise DataError(problems[0])
        record = record_run(own_arguments(), seed=seed)
        text = write_results(rows, out, record=record, plan=plan, remarks=chosen.remarks)
        draw_means(out, rows)
    show_tracts(console, rows)
    for remark in chosen.remarks:
        console.print(f"remark: {remark}", style="yellow", markup=False, highlight=False)
    if results is not None:
        replace_section(results, "tracts", text=text)
    made = "Tensors, tractograms" if study is None else "Tractograms"
    console.print(f"{made}, pictures and tables are in {out}", markup=False, soft_wrap=True)
    for problem in problems:
        typer.echo(f"error: {problem}", err=True)
    if problems:
        raise typer.Exit(SOME_FAILED)


def _making(names: Sequence[str] | None, models: Sequence[str], *, seed: int, device: str) -> "Making":
    """How tensors are made; a model that is not there is refused."""
    from tensorldm.experiments.methods import identity
    from tensorldm.experiments.tract_tensors import Making, name_methods
    from tensorldm.reconstruct.choice import pick_device

    methods = name_methods(names, models)
    for each in methods.values():
        identity(each)
    return Making(methods, seed, pick_device(device))


def _from_scans(
    cohorts: Sequence[Path], wanted: "Wanted", making: "Making", *, out: Path, most: int | None, workers: int
) -> Choose:
    """Subjects of cohorts that are there, and of those that are made first."""
    from tensorldm.experiments.tract_subjects import Chosen, find_subjects, make_cohorts

    def choose(tell: Tell) -> "Chosen":
        made = make_cohorts(wanted, out / "cohorts", workers=workers, tell=tell)
        return Chosen(find_subjects([*cohorts, *made], out, making=making, most=most))

    return choose


def _refuse_beside(study: Path, given: Mapping[str, object]) -> None:
    """A study brings its subjects and their tensors."""
    from tensorldm.errors import ConfigError

    beside = [name for name, value in given.items() if value not in (None, [], ())]
    if beside:
        raise ConfigError(
            f"--study {study}: its subjects and tensors are measured as they are, so there is no place for "
            f"{', '.join(beside)}. Leave out one or the other."
        )


def _from_study(study: Path, names: Sequence[str], *, out: Path, most: int | None) -> Choose:
    """Subjects of a study with the tensors that it has kept; they are found before ``out`` is touched."""
    from tensorldm.experiments.tables.stored import StoredStudy
    from tensorldm.experiments.tract_study import find_kept

    stored = StoredStudy.open(study)
    found = find_kept(stored.study, stored.results, out, names=names, most=most)
    return lambda _tell: found
